//! Access to EVM chains: the JSON-RPC client with failover between endpoints, what is configured of a chain and its checks
//! against the chain, fees, deployment, and the keys that sign.
//!
//! This crate uses neither the database nor payments. alloy's types are used here and by the engine's watcher and
//! settler.

pub mod client;
pub mod config;
pub mod deploy;
pub mod eip3009;
mod endpoint;
mod failover;
pub mod fees;
mod http;
pub mod inspect;
pub mod l1_data;
pub mod metrics;
pub mod pace;
mod prefix;
pub mod wallet;
mod wire;

pub use client::{ChainClient, ClientError};
pub use config::{ChainSpec, FeeCeilings, L1Data, SpecError};
pub use prefix::Prefix;
pub use wire::Degradation;
