//! The account's own money: payouts, withdrawals, transfers to customers, balances and the ledger. Reads query the
//! database. Changes are one call to the actors.

pub mod balances;
pub mod entries;
mod outbound;
mod payee;
pub mod payouts;
mod span;
pub mod statement;
pub mod transfers;
pub mod withdrawals;
