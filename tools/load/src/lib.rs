//! Load tester: initiates and pays payments at a steady rate and checks the outcome of each.

pub mod arrivals;
pub mod audit;
pub mod behaviour;
pub mod blocks;
pub mod clock;
pub mod command;
pub mod expect;
pub mod findings;
pub mod record;
pub mod report;
pub mod run;
pub mod settings;
pub mod stages;
pub mod state;
pub mod tally;
