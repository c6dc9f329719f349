//! Identity verification (KYC and KYB): the provider trait, the providers, and the compliance service, the actor that
//! works through the checks.
//!
//! The queue is the table `checks`: the commit that requests a check writes its row, and only then does an actor run. A
//! provider error is never a verdict. Not here: the effect of a verdict on a customer (`payferry_domain::customer`).

mod conclude;
mod metrics;
mod provider;
mod queue;
mod sandbox;
mod service;
mod sumsub;
#[cfg(test)]
mod tests;
mod work;

pub use conclude::VerdictEffect;
pub use provider::{
    CallbackError, CallbackFact, CheckRequest, IdentityError, IdentityProvider, IdentitySubject, ProviderCheckStatus,
    StartedCheck,
};
pub use queue::{COUNTED_MAX, CheckBacklog, count, link_of, link_place, overdue};
pub use sandbox::{RESCREEN_TAKES, SANDBOX_PROVIDER, SandboxIdentity, VerificationLinks};
pub(crate) use service::NAME;
pub use service::{CallbackFailure, ComplianceConfig, ComplianceService};
pub use sumsub::{SUMSUB_PROVIDER, Sumsub, SumsubError, SumsubSettings};
pub use work::ProviderOutage;
