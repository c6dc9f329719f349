//! The whole tree behind endpoints that do wrong what providers do wrong: nothing is confirmed that is not so, nothing is
//! settled twice or lost, and an operator can read what is the matter.
#![allow(clippy::unwrap_used, missing_docs)]

mod failover;
mod faults;
mod logs;
mod mixture;
mod reorganised;
mod senses;
mod world;
