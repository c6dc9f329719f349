//! The contracts, run on revm: what they promise, and what they cost.
#![allow(clippy::unwrap_used, missing_docs)]

mod addresses;
mod admin;
mod artifacts;
mod gas;
mod hostile;
mod operations;
mod world;
