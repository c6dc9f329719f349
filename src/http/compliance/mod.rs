//! Verification of customers: requested by the PSP, answered by the provider's callbacks.
//!
//! The compliance service decides when to contact the provider, and the domain what a verdict means.

pub mod callbacks;
pub mod request;
