//! The whole actor tree over a real database and an in-process chain, with actors that are killed.
#![allow(clippy::unwrap_used, missing_docs)]

mod books;
mod crashes;
mod crowd;
mod desk;
mod money;
mod payments;
mod sendings;
mod taken_back;
mod unknown;
mod waits;
mod watched;
mod world;
