//! The testkit: what the tools and the tests use to drive the service from outside.
//!
//! It contains one PSP client, one webhook receiver, payers, the state and the audit of a run of payments, and the child
//! process of a service. It knows the service by its wire only and shares no code with it, except contracts and
//! devchain.

pub mod audit;
pub mod client;
pub mod ledger;
pub mod metrics;
pub mod movements;
pub mod networks;
pub mod payers;
pub mod progress;
pub mod psp;
pub mod rate;
pub mod receiver;
pub mod rpc;
pub mod sandbox;
pub mod service;
pub mod signature;
pub mod stub;
pub mod usage;
pub mod wire;
