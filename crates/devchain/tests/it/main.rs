//! Tests of the chain as an alloy provider, over HTTP, and through its handle.
#![allow(clippy::unwrap_used, missing_docs)]

mod env;
mod faults;
mod fees;
mod http;
mod logs;
mod mempool;
mod persistence;
mod provider;
mod reorg;
mod time;
