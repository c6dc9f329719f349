//! Building blocks of the service without payment logic: the actor wrapper, supervision, metrics of actors,
//! the clock, sealing, private files, traces, and the TLS provider.
//!
//! This crate depends on no other crate of the workspace. Times are [`std::time::SystemTime`], and actors are named by
//! strings.

pub mod clock;
pub mod files;
pub mod observe;
pub mod request;
pub mod seal;
pub mod supervise;
pub mod tls;
pub mod trace;
