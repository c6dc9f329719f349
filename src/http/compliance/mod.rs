//! Verification of customers: asked for by the PSP, and answered by the provider's callbacks.
//!
//! Deliberately absent: who is asked and when (the compliance desk), and what a verdict means (the domain).

pub mod callbacks;
pub mod request;
