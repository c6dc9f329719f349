//! Checks the ledger: balances against postings, and postings against the state of payments and outbound transfers.

pub mod check;
