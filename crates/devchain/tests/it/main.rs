//! Tests of the chain as an alloy provider, over HTTP, and through its handle; and of its responses, compared with
//! those of anvil.
#![allow(clippy::unwrap_used, missing_docs)]

mod against_anvil;
mod env;
mod faults;
mod fees;
mod filters;
mod http;
mod mempool;
mod persistence;
mod provider;
mod reorg;
mod snapshots;
mod time;
mod ws;
