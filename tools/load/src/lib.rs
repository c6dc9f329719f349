//! Load tester: initiates and pays payments at a steady rate and checks the outcome of each.

pub mod arrivals;
pub mod blocks;
pub mod command;
pub mod report;
pub mod run;
