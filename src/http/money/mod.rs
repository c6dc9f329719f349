//! Money of the account itself: payouts, withdrawals, balances and the ledger. Reads go to the database, changes are one
//! call to the actors.

pub mod balances;
pub mod entries;
pub mod payouts;
mod sendings;
pub mod statement;
pub mod withdrawals;
