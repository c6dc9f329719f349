//! Tests of the contracts on revm: behaviour and gas.
#![allow(clippy::unwrap_used, missing_docs)]

mod addresses;
mod artifacts;
mod collect;
mod env;
mod fiat_token;
mod gas;
mod hostile;
mod invariants;
mod multicall;
mod native;
mod payer;
mod random;
mod roles;
mod rules;
mod send;
mod settle;
