//! Tests of the contracts on revm: behaviour and gas.
#![allow(clippy::unwrap_used, missing_docs)]

mod addresses;
mod admin;
mod artifacts;
mod env;
mod gas;
mod hostile;
mod multicall;
mod operations;
