//! Payferry, the service: wiring and wire formats around the supervision tree.
//!
//! Owns the command line, the configuration and the sandbox. What payments do is in `payferry-domain` and
//! `payferry-actors`.

pub mod app;
#[cfg(feature = "tools")]
pub mod bench;
pub mod cli;
pub mod config;
#[cfg(feature = "tools")]
pub mod demo;
pub mod http;
#[cfg(feature = "tools")]
pub mod load;
pub mod rotation;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod service;
pub mod statements;
pub mod telemetry;
