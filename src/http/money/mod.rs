//! The account's own money: payouts, withdrawals, transfers to customers, balances and the ledger. Reads query the
//! database. Changes are one call to the actors.

pub mod balances;
pub mod entries;
pub mod outbound;
mod span;
pub mod statement;
pub mod transfers;
