//! Identity verification (KYC and KYB): the trait that providers implement, the providers, and the desk that works off
//! what is to be checked.
//!
//! The queue is the table `checks`: a row is written in the commit that asks for it, and only then does anybody act.
//! A provider's error is never a verdict. Deliberately absent: what a verdict means for a customer
//! (`payferry_domain::customer`).

mod conclude;
mod desk;
mod metrics;
mod provider;
mod queue;
mod sandbox;
mod sumsub;
#[cfg(test)]
mod tests;
mod work;

pub use conclude::{Concluded, take_in};
pub use desk::{CallbackFailure, ComplianceDesk, DeskConfig};
pub use provider::{Begun, CallbackError, CallbackFact, CheckRequest, IdentityError, IdentityProvider, Look, Subject};
pub use queue::{Backlog, COUNTED_MAX, count, link_of, link_place, overdue};
pub use sandbox::{RESCREEN_TAKES, SANDBOX_PROVIDER, SandboxIdentity, VerificationLinks};
pub use sumsub::{SUMSUB_PROVIDER, Sumsub, SumsubError, SumsubSettings};
pub use work::ProviderTrouble;
