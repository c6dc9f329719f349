//! The supervision tree that runs payments: journal, payment shards and actors, chain watchers and settlers, screening
//! and the webhook sender.
//!
//! Truth is in the database. Every actor here is a cache with a queue: it can be killed at any moment and is rebuilt
//! from its rows. No HTTP server is known here, and nothing is a singleton: a test may own several trees.

pub mod auditors;
pub mod chain;
pub mod chains;
pub mod clock;
pub mod compliance;
pub mod customers;
pub mod destination;
pub mod files;
pub mod inbox;
pub mod journal;
pub mod ledger;
pub mod observe;
pub mod pauses;
pub mod payment;
pub mod psps;
pub mod reconcile;
pub mod seal;
pub mod sending;
mod supervise;
pub mod system;
pub mod tls;
pub mod wallet;
pub mod webhook;

pub use system::{
    ChainAsked, ChainSetup, CommandError, InitiateError, InitiatePayment, OrderAnswer, OrderError, OrderSending,
    PaymentView, SendingCommandError, SendingView, StartError, System, SystemConfig, SystemView,
};
