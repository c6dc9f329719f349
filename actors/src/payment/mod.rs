//! Payments at run time.

pub mod store;
