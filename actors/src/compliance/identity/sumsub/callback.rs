//! Reader of Sumsub's callbacks.
//!
//! Based on <https://docs.sumsub.com/docs/webhook-manager> (sender and repetition) and
//! <https://docs.sumsub.com/docs/user-verification-webhooks> (content). The body is signed by HMAC with the webhook's
//! secret; `X-Payload-Digest-Alg` names the hash and `X-Payload-Digest` contains the signature. The signature covers
//! `createdAtMs`, the time of the event. Sumsub repeats a failed delivery for up to a day with the same body, so
//! callbacks are accepted for two days; within that time a repeated callback has no further effect.

use std::time::Duration;

use chrono::NaiveDateTime;
use hmac::{Hmac, KeyInit, Mac};
use payferry_domain::{CheckId, Timestamp};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use sha2::{Sha256, Sha512};

use super::super::provider::{CallbackError, CallbackFact, ProviderCheckStatus};
use super::review::{Levels, Review};

/// Header with the signature.
const DIGEST: &str = "x-payload-digest";
/// Header with the name of the hash.
const DIGEST_ALG: &str = "x-payload-digest-alg";
/// Maximum age of a callback: the last repetition comes after one day.
const AGE_MAX: Duration = Duration::from_hours(48);
/// Maximum lead of the provider's clock.
const AHEAD_MAX: Duration = Duration::from_mins(5);
/// Format of `createdAtMs`, in UTC.
const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S%.f";
/// The only callback type with a decision.
const REVIEWED: &str = "applicantReviewed";

/// Verifies and parses callbacks.
#[derive(Clone)]
pub(super) struct CallbackReader {
    secret: Vec<u8>,
    levels: Levels,
    /// `true` if the app token belongs to Sumsub's sandbox: its verdicts count only there.
    is_sandbox: bool,
}

/// A callback; only the used fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Callback {
    r#type: String,
    applicant_id: Option<String>,
    external_user_id: Option<String>,
    created_at_ms: Option<String>,
    #[serde(default)]
    sandbox_mode: bool,
    #[serde(flatten)]
    review: Review,
}

impl CallbackReader {
    pub(super) fn new(secret: &str, levels: Levels, is_sandbox: bool) -> Self {
        Self { secret: secret.as_bytes().to_vec(), levels, is_sandbox }
    }

    pub(super) fn read(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Vec<CallbackFact>, CallbackError> {
        self.verify(headers, body)?;
        let unreadable = |what| move || CallbackError::Unreadable(what);
        let callback: Callback =
            serde_json::from_slice(body).map_err(|_| CallbackError::Unreadable("the body is not a callback"))?;
        let at =
            callback.created_at_ms.as_deref().and_then(parse_time).ok_or_else(unreadable("the body has no time"))?;
        let age_ms = now.millis_since(at);
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        if age_ms > millis(AGE_MAX) || age_ms < -millis(AHEAD_MAX) {
            return Err(CallbackError::Forged("its time is outside the accepted range"));
        }
        if callback.r#type != REVIEWED || callback.sandbox_mode != self.is_sandbox {
            return Ok(Vec::new());
        }
        let ProviderCheckStatus::Decided(verdict) = callback.review.check_status(&self.levels) else {
            return Ok(Vec::new());
        };
        let applicant = callback.applicant_id.filter(|id| !id.is_empty());
        let provider_ref = applicant.ok_or_else(unreadable("the body names no applicant"))?;
        let named = callback.external_user_id.ok_or_else(unreadable("the body names no user"))?;
        // Users of other applications of the same account are ignored.
        let check: Option<CheckId> = named.parse().ok();
        Ok(check.map(|check| CallbackFact { check, provider_ref, verdict }).into_iter().collect())
    }

    /// SHA-1 is rejected although the provider still offers it.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), CallbackError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let digest = text(DIGEST).ok_or(CallbackError::Forged("it is not signed"))?;
        let digest = hex::decode(digest.trim()).map_err(|_| CallbackError::Forged("its signature is malformed"))?;
        let is_genuine = match text(DIGEST_ALG) {
            Some("HMAC_SHA256_HEX") => {
                let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC accepts a key of any length");
                mac.update(body);
                mac.verify_slice(&digest).is_ok()
            }
            Some("HMAC_SHA512_HEX") => {
                let mut mac = Hmac::<Sha512>::new_from_slice(&self.secret).expect("HMAC accepts a key of any length");
                mac.update(body);
                mac.verify_slice(&digest).is_ok()
            }
            _ => return Err(CallbackError::Forged("its signature algorithm is not accepted")),
        };
        if is_genuine { Ok(()) } else { Err(CallbackError::Forged("its signature is wrong")) }
    }
}

fn parse_time(text: &str) -> Option<Timestamp> {
    NaiveDateTime::parse_from_str(text, TIME_FORMAT).ok().map(|time| time.and_utc().into())
}
