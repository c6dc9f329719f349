//! What the tests put around the service, outside its process as the world is: databases, chains, payers, receivers
//! of webhooks, faults and sudden death.
//!
//! Knows the service by its wire only: nothing of `payferry` or `payferry-actors` is used here. What fails panics with
//! the reason, as a test does.
#![allow(clippy::unwrap_used)]

pub mod anvil;
pub mod database;
