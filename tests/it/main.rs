//! Integration tests with real HTTP, chains, databases and processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod app;
mod browser;
mod call;
mod chainside;
mod cli;
mod compat;
mod docs;
mod edge;
mod faults;
mod http;
mod kill;
mod load;
mod operator;
mod prelude;
mod process;
mod reconcile;
mod sse;
mod stage;
mod statements;
mod stories;
mod tls;
mod vault;
