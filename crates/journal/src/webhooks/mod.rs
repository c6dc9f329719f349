//! Rows of webhooks: the delivery log, and how long it is kept.

pub mod log;
pub mod retention;
