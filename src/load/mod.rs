//! The load tester: payments at a steady rate, and what became of them.

pub mod api;
pub mod arrivals;
pub mod behaviour;
pub mod blocks;
pub mod book;
pub mod client;
pub mod expect;
pub mod ground;
pub mod own_sandbox;
pub mod payers;
pub mod receiver;
pub mod record;
pub mod rpc;
pub mod stages;
pub mod tally;
pub mod usage;
