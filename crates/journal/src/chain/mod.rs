//! Rows of chains: blocks that were read, transfers, operations, transactions and their signed bytes.

pub mod attempts;
pub mod cursor;
mod kinds;
pub mod queue;
pub mod recipients;
pub mod rows;

pub use kinds::{Role, is_outbound, pays_customer};
