//! The accounts of a service: PSPs and their API keys, the documents of customers, and reading of the audit log.
//!
//! The PSP API, the operator listener and the command line share this code. Deliberately absent: HTTP, and everything about
//! payments.

pub mod audit;
pub mod documents;
pub mod keys;
mod moment;
pub mod search;
pub mod tenants;

pub use moment::Moment;
