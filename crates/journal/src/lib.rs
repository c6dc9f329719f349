//! The group-commit writer, and the stores: what the rows of each table mean, how they are read, and what a change of an
//! aggregate writes.
//!
//! The writer (`writer`) commits typed units in groups; the stores build them. Each store is the one place that knows both
//! an aggregate and its rows. Deliberately absent: decisions, which are the domain's, and everything that runs on its own.

pub mod audit;
pub mod chain;
pub mod customers;
pub mod opening;
pub mod outbound;
pub mod payments;
pub mod postings;
pub mod psps;
pub mod webhooks;
mod writer;

pub use writer::*;
