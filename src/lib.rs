//! Payferry, the service: wiring and wire formats around the supervision tree.
//!
//! Owns the command line, the configuration and the sandbox. What payments do is in `payferry-domain` and
//! `payferry-actors`.

pub mod app;
pub mod audit;
pub mod cli;
pub mod config;
pub mod documents;
pub mod http;
pub mod keys;
pub mod operator;
pub mod rotation;
pub mod sandbox;
pub mod service;
pub mod statements;
pub mod telemetry;
pub mod tenants;
