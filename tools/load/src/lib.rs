//! Load tester: initiates and pays payments at a steady rate and checks the outcome of each.

mod args;
mod arrivals;
mod blocks;
pub mod command;
mod compare;
mod faults;
mod knee;
mod output;
mod own;
mod report;
mod run;
mod schedule;
mod target;
mod thresholds;
