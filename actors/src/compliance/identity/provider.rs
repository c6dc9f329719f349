//! What an identity provider is asked and answers.

use std::fmt;
use std::time::Duration;

use payferry_domain::customer::{CustomerKind, Verdict};
use payferry_domain::{CheckId, Timestamp};
use reqwest::header::HeaderMap;
use url::Url;

/// A verification to be begun. The provider learns nothing of the customer from us: it asks the person itself.
#[derive(Debug, Clone, Copy)]
pub struct CheckRequest {
    /// Our id of the check, which is the provider's key: asked twice, there is one session.
    pub check: CheckId,
    /// Person or company. Of a company, the primary contact is verified.
    pub kind: CustomerKind,
}

/// Who is screened again, with no more than a screening needs. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Subject {
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

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subject")
    }
}

/// A check that the provider has taken on.
#[derive(Clone, PartialEq, Eq)]
pub enum Begun {
    /// It takes time.
    Open {
        /// The provider's own id of it.
        provider_ref: String,
        /// Where the person goes to be verified. Whoever has it can go there, so it is kept like a secret.
        url: Option<Url>,
        /// When a look is worth while; `None`: as often as the desk looks at anything.
        look_after: Option<Duration>,
    },
    /// It is decided already.
    Decided {
        /// The provider's own id of it.
        provider_ref: String,
        /// How.
        verdict: Verdict,
    },
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { provider_ref, url, .. } => {
                f.debug_struct("Open").field("provider_ref", provider_ref).field("url", &url.is_some()).finish()
            }
            Self::Decided { provider_ref, verdict } => {
                f.debug_struct("Decided").field("provider_ref", provider_ref).field("verdict", verdict).finish()
            }
        }
    }
}

/// How a check stands at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Not decided.
    UnderWay,
    /// Decided.
    Decided(Verdict),
    /// It ended without a verdict: the person gave up, or it was removed.
    Lapsed,
}

/// What a genuine callback tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackFact {
    /// The check, by our id.
    pub check: CheckId,
    /// The check, by the provider's.
    pub provider_ref: String,
    /// How it was decided.
    pub verdict: Verdict,
}

/// Why a callback is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// It is not the provider's, or not from now.
    #[error("{0}")]
    Forged(&'static str),
    /// It is the provider's, and not what it documents.
    #[error("{0}")]
    Unreadable(&'static str),
}

/// Why a provider did not answer. Holds no secret, no address and nothing of the customer; never shown to PSPs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(pub String);

/// An identity provider. An error is never a verdict: the check waits and is asked about again.
///
/// Every request is keyed by our check id, so that whatever is repeated after a crash finds what was begun before.
#[async_trait::async_trait]
pub trait IdentityProvider: Send + Sync + 'static {
    /// The provider's name, as it stands in rows, in the audit log and in the path of its callbacks.
    fn name(&self) -> &'static str;

    /// How long a verification's link works; `None`: for ever. It is renewed by beginning the check again.
    fn link_lifetime(&self) -> Option<Duration> {
        None
    }

    /// Begins a verification, or finds the one that was begun with this id.
    async fn begin(&self, request: &CheckRequest) -> Result<Begun, IdentityError>;

    /// Screens somebody again who was verified before, or finds the screening that was begun with this id.
    async fn rescreen(&self, request: &CheckRequest, subject: &Subject) -> Result<Begun, IdentityError>;

    /// How a check that was begun stands.
    async fn look(&self, check: CheckId, provider_ref: &str) -> Result<Look, IdentityError>;

    /// What a callback tells, once its signature and its time are found right. Empty: nothing that matters here.
    fn read_callback(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Vec<CallbackFact>, CallbackError>;
}
