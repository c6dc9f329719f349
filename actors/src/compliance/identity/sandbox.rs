//! Sandbox identity provider: a page with two buttons replaces the verification of a person.
//!
//! It stores nothing. A link contains the check's id and a keyed hash of it, so a check has the same link after any
//! restart, and links of other checks cannot be guessed.

use std::time::Duration;

use payferry_domain::customer::IdentityVerdict;
use payferry_domain::{CheckId, Timestamp};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use reqwest::header::HeaderMap;
use subtle::ConstantTimeEq;
use url::Url;

use super::provider::{
    CallbackError, CallbackFact, CheckRequest, IdentityError, IdentityProvider, IdentitySubject, ProviderCheckStatus,
    StartedCheck,
};

/// Provider name in rows and in the audit log.
pub const SANDBOX_PROVIDER: &str = "sandbox";
/// Duration of a screening: long enough to be visible, well within the interface's limit of 5 seconds.
pub const RESCREEN_TAKES: Duration = Duration::from_secs(1);
/// Prefix of a screening's reference; the start time follows.
const RESCREEN_PREFIX: &str = "rescreen-";
/// Length of a link's hash, hexadecimal digits.
const PROOF_CHARS: usize = 32;

/// Approves screenings automatically. Verifications are decided on the page or through the sandbox's route.
#[derive(Debug, Clone)]
pub struct SandboxIdentity {
    links: VerificationLinks,
    clock: Clock,
}

/// Creates and parses the links of verification pages.
#[derive(Debug, Clone)]
pub struct VerificationLinks {
    public_url: Url,
    sealer: Sealer,
}

impl VerificationLinks {
    /// Creates links below `public_url`.
    pub fn new(public_url: Url, sealer: Sealer) -> Self {
        Self { public_url, sealer }
    }

    /// Returns the URL of a check's page.
    pub fn link(&self, check: CheckId) -> Option<Url> {
        let mut url = self.public_url.clone();
        let token = format!("{check}.{}", self.proof(check));
        url.path_segments_mut().ok()?.pop_if_empty().extend(["sandbox", "verify", &token]);
        Some(url)
    }

    /// Returns the check of a page; `None` for a token that was never issued.
    pub fn check_of(&self, token: &str) -> Option<CheckId> {
        let (check, proof) = token.split_once('.')?;
        let check: CheckId = check.parse().ok()?;
        let is_genuine = self.proof(check).as_bytes().ct_eq(proof.as_bytes());
        bool::from(is_genuine).then_some(check)
    }

    fn proof(&self, check: CheckId) -> String {
        let mut proof = self.sealer.keyed_hash(&[b"sandbox verification page", check.to_string().as_bytes()]);
        proof.truncate(PROOF_CHARS);
        proof
    }
}

impl SandboxIdentity {
    /// Creates a provider with these page links.
    pub fn new(links: VerificationLinks, clock: Clock) -> Self {
        Self { links, clock }
    }
}

#[async_trait::async_trait]
impl IdentityProvider for SandboxIdentity {
    fn name(&self) -> &'static str {
        SANDBOX_PROVIDER
    }

    async fn begin(&self, request: &CheckRequest) -> Result<StartedCheck, IdentityError> {
        let provider_ref = format!("sandbox-{}", request.check);
        Ok(StartedCheck::Open { provider_ref, url: self.links.link(request.check), look_after: None })
    }

    async fn rescreen(&self, request: &CheckRequest, _: &IdentitySubject) -> Result<StartedCheck, IdentityError> {
        let provider_ref =
            format!("{RESCREEN_PREFIX}{}-{}", self.clock.real_now::<Timestamp>().as_millis(), request.check);
        Ok(StartedCheck::Open { provider_ref, url: None, look_after: Some(RESCREEN_TAKES) })
    }

    async fn check_status(&self, _: CheckId, provider_ref: &str) -> Result<ProviderCheckStatus, IdentityError> {
        let begun = provider_ref.strip_prefix(RESCREEN_PREFIX).and_then(|rest| rest.split_once('-')?.0.parse().ok());
        let takes = i64::try_from(RESCREEN_TAKES.as_millis()).unwrap_or(i64::MAX);
        match begun {
            Some(begun) if self.clock.real_now::<Timestamp>().millis_since(Timestamp(begun)) >= takes => {
                Ok(ProviderCheckStatus::Decided(IdentityVerdict::Approved))
            }
            _ => Ok(ProviderCheckStatus::InProgress),
        }
    }

    fn read_callback(&self, _: &HeaderMap, _: &[u8], _: Timestamp) -> Result<Vec<CallbackFact>, CallbackError> {
        Err(CallbackError::Forged("the sandbox's provider sends no callbacks"))
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::customer::CustomerKind;

    use super::*;

    fn links(key: u8) -> VerificationLinks {
        VerificationLinks::new(Url::parse("http://pay.example/below/").unwrap(), Sealer::new(&[key; 32]))
    }

    #[tokio::test]
    async fn check_has_one_link_that_cannot_be_guessed() {
        let provider = SandboxIdentity::new(links(1), Clock::default());
        let request = CheckRequest { check: CheckId::generate(), kind: CustomerKind::Individual };
        let begun = provider.begin(&request).await.unwrap();
        assert_eq!(begun, provider.begin(&request).await.unwrap());
        let StartedCheck::Open { url: Some(url), .. } = begun else { panic!("{begun:?}") };
        let token = url.path().strip_prefix("/below/sandbox/verify/").unwrap();
        assert_eq!(links(1).check_of(token), Some(request.check));
        assert_eq!(links(2).check_of(token), None, "another sandbox's");
        let other = token.replace(&request.check.to_string(), &CheckId::generate().to_string());
        for forged in [other.as_str(), &token[..token.len() - 1], "", ".", &request.check.to_string()] {
            assert_eq!(links(1).check_of(forged), None, "{forged}");
        }
    }

    #[tokio::test]
    async fn only_screenings_are_approved_automatically() {
        let provider = SandboxIdentity::new(links(1), Clock::default());
        let check = CheckId::generate();
        let now: Timestamp = Clock::default().real_now();
        let ago = |ms: i64| format!("{RESCREEN_PREFIX}{}-x", now.plus_millis(-ms).as_millis());
        assert_eq!(
            provider.check_status(check, &ago(1_100)).await.unwrap(),
            ProviderCheckStatus::Decided(IdentityVerdict::Approved)
        );
        assert_eq!(provider.check_status(check, &ago(-60_000)).await.unwrap(), ProviderCheckStatus::InProgress);
        assert_eq!(
            provider.check_status(check, &format!("sandbox-{check}")).await.unwrap(),
            ProviderCheckStatus::InProgress
        );
    }
}
