//! The whole actor tree over a real database and an in-process chain, with actors that are killed.
#![allow(clippy::unwrap_used, missing_docs)]

mod books;
mod crashes;
mod env;
mod many_payments;
mod money;
mod orphaned;
mod outbound;
mod payments;
mod service;
mod unknown;
mod waits;
mod watched;
