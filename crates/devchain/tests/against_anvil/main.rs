//! The devchain against anvil: the same calls over HTTP to both, with the same accounts, transactions and contracts, and
//! the same answers.
//!
//! `pair.rs` has the two nodes and compares what they answer, `normal.rs` says what is taken out before, and why. Every
//! difference besides is a named test, or an assertion with both answers: `refused` where the two refuse in words of
//! their own, `differs` where one does what the other does not. What the devchain says differently it says as geth,
//! whose words most endpoints of real chains speak. Anvil must be installed: `tests/tools`.
#![allow(clippy::unwrap_used, missing_docs)]

mod controls;
mod envelope;
mod logs;
mod normal;
mod pair;
mod reading;
mod running;
mod sending;
mod world;
