//! Integration tests with real HTTP, chains, databases and processes.
#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
mod shared;

mod app;
mod browser;
mod call;
mod chainside;
mod cli;
mod clients;
mod compat;
mod conformance;
mod dashboard;
mod edge;
mod faults;
mod guides;
mod http;
mod kill;
mod monitoring;
mod openapi;
mod operator;
mod packages;
mod prelude;
mod process;
mod reconcile;
mod remote_signer;
mod roles;
mod sse;
mod stage;
mod statements;
mod stories;
mod tls;
mod vault;
