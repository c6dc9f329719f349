//! Merchants: handlers that read and write rows, without an actor.

pub mod read;
pub mod sync;
