//! The check of the ledger: its sums against its postings, and its postings against what they stand for.

pub mod check;
