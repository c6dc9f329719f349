//! The load tester: payments at a steady rate, and what became of them.

pub mod api;
pub mod arrivals;
pub mod audit;
pub mod behaviour;
pub mod blocks;
pub mod book;
pub mod client;
pub mod clock;
pub mod expect;
pub mod findings;
pub mod ground;
pub mod ledger;
pub mod metrics;
pub mod moved;
pub mod own_sandbox;
pub mod payers;
pub mod progress;
pub mod receiver;
pub mod record;
pub mod report;
pub mod rpc;
pub mod run;
pub mod settings;
pub mod stages;
pub mod tally;
pub mod usage;
