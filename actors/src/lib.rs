//! The engine: the supervision tree that runs payments and outbound transfers, watches and settles on chains, screens,
//! and audits.
//!
//! The database is authoritative. Every actor is a cache with a queue: it can be killed at any moment and is rebuilt
//! from its rows. This crate knows no HTTP server and has no singletons: a test may run several trees.

mod admission;
mod aggregate;
mod announcer;
pub mod auditors;
pub mod chain;
pub mod chains;
pub mod compliance;
pub mod customers;
pub mod destination;
mod failed;
pub mod inbox;
pub mod ledger;
pub mod observe;
pub mod outbound;
pub mod pauses;
pub mod payment;
pub mod reconcile;
pub mod system;

pub use admission::{AdmissionView, QueueDelay};
pub use system::{
    ChainAway, ChainChoiceRequest, ChainSetup, InitiateError, InitiatePayment, OrderAnswer, OrderError, OutboundOrder,
    OutboundView, PaymentView, StartError, System, SystemConfig, SystemView,
};
