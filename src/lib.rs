//! The Payferry service: wiring and wire formats around the supervision tree.
//!
//! Owns the command line, the configuration and the sandbox. The payment logic is in `payferry-domain` and
//! `payferry-actors`.

#[macro_use(record)]
extern crate payferry_httpkit;

pub mod app;
pub mod backup;
pub mod cli;
pub mod config;
pub mod http;
pub mod rotation;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod service;
pub mod statements;
pub mod telemetry;
pub mod terms;
