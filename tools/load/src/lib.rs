//! Load tester: initiates and pays payments at a steady rate and checks the outcome of each.

mod arrivals;
mod blocks;
pub mod command;
mod report;
mod run;
