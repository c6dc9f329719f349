//! The group-commit writer, and the stores: what the rows of each table mean, how they are read, and what a change of an
//! aggregate writes.
//!
//! The writer (`writer`) commits writes in groups; the stores build them. Each store is the only place that knows both
//! an aggregate and its rows. Deliberately absent: decisions, which the domain makes, and background tasks.

// Fixtures that other crates also use name this crate.
#[cfg(test)]
extern crate self as payferry_journal;

pub mod audit;
pub mod chain;
pub mod customers;
pub mod lists;
pub mod outbound;
pub mod payments;
pub mod postings;
pub mod psps;
pub mod replay;
pub mod violations;
pub mod webhooks;
mod writer;

pub use writer::*;
