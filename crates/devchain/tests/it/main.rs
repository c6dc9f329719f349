//! The chain from outside: as an alloy provider, as HTTP, and through its handle.
#![allow(clippy::unwrap_used, missing_docs)]

mod faults;
mod fees;
mod http;
mod logs;
mod mempool;
mod persistence;
mod provider;
mod reorg;
mod time;
mod world;
