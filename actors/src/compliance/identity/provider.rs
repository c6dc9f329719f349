//! Interface of identity providers: requests and answers.

use std::time::Duration;

use payferry_domain::customer::{CustomerKind, IdentityVerdict};
use payferry_domain::{CheckId, Timestamp};
use reqwest::header::HeaderMap;
use url::Url;

/// A verification to start. The provider gets no customer data from Payferry; it asks the person.
#[derive(Debug, Clone, Copy)]
pub struct CheckRequest {
    /// Id of the check, used as the provider's key: a repeated request finds the same session.
    pub check: CheckId,
    /// Person or company. For a company, the primary contact is verified.
    pub kind: CustomerKind,
}

/// Person to be screened again, with only the data that a screening needs. `Debug` shows none of it.
#[derive(Clone, derive_more::Debug)]
#[debug("IdentitySubject")]
pub struct IdentitySubject {
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Date of birth, `YYYY-MM-DD`.
    pub dob: String,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// E.164.
    pub phone_number: Option<String>,
}

/// A check that the provider has accepted.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub enum StartedCheck {
    /// Not decided yet.
    Open {
        /// Id of the check at the provider.
        provider_ref: String,
        /// Link for the person to be verified. Anyone who has it can use it, so it is stored like a secret.
        #[debug("{}", url.is_some())]
        url: Option<Url>,
        /// Delay before the first status query; `None` uses the default interval.
        look_after: Option<Duration>,
    },
    /// Already decided.
    Decided {
        /// Id of the check at the provider.
        provider_ref: String,
        /// Verdict.
        verdict: IdentityVerdict,
    },
}

/// Status of a check at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderCheckStatus {
    /// Not decided.
    InProgress,
    /// Decided.
    Decided(IdentityVerdict),
    /// Ended without a verdict: the person gave up, or the check was removed.
    Lapsed,
}

/// Content of a genuine callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackFact {
    /// Our id of the check.
    pub check: CheckId,
    /// Id of the check at the provider.
    pub provider_ref: String,
    /// Verdict.
    pub verdict: IdentityVerdict,
}

/// Reasons to reject a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// It is not from the provider, or its time is outside the accepted range.
    #[error("{0}")]
    Forged(&'static str),
    /// It is from the provider but does not match its documentation.
    #[error("{0}")]
    Unreadable(&'static str),
}

/// Reason of a provider failure. Contains no secret, no URL and no customer data; never shown to PSPs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(pub String);

/// An identity provider. An error is never a verdict: the check waits and is retried.
///
/// Every request is keyed by our check id, so a request that is repeated after a crash finds the existing session.
#[async_trait::async_trait]
pub trait IdentityProvider: Send + Sync + 'static {
    /// Name of the provider in rows, in the audit log and in the path of its callbacks.
    fn name(&self) -> &'static str;

    /// Lifetime of a verification link; `None` means unlimited. Starting the check again renews the link.
    fn link_lifetime(&self) -> Option<Duration> {
        None
    }

    /// Starts a verification, or finds the one started with this id.
    async fn begin(&self, request: &CheckRequest) -> Result<StartedCheck, IdentityError>;

    /// Screens a previously verified person again, or finds the screening started with this id.
    async fn rescreen(&self, request: &CheckRequest, subject: &IdentitySubject) -> Result<StartedCheck, IdentityError>;

    /// Returns the status of a started check.
    async fn check_status(&self, check: CheckId, provider_ref: &str) -> Result<ProviderCheckStatus, IdentityError>;

    /// Parses a callback after it verifies the signature and the time. Empty if nothing in it is relevant.
    fn read_callback(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Vec<CallbackFact>, CallbackError>;
}
