//! The whole actor tree behind faulty endpoints that behave like real providers: no wrong confirmation, no lost or
//! double settlement, and the operator sees the reason.
#![allow(clippy::unwrap_used, missing_docs)]

mod env;
mod failover;
mod faults;
mod logs;
mod mixture;
mod reorganised;
mod senses;
