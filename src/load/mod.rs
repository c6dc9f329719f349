//! The load tester: payments at a steady rate, and what became of them.

pub mod client;
