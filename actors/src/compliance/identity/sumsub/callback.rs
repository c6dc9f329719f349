//! Reads Sumsub's callbacks.
//!
//! After <https://docs.sumsub.com/docs/webhook-manager> (sender and repetition) and
//! <https://docs.sumsub.com/docs/user-verification-webhooks> (what they hold): the body is signed by HMAC under the
//! webhook's secret, `X-Payload-Digest-Alg` names the hash and `X-Payload-Digest` holds it. The signature covers
//! `createdAtMs`, when the fact happened. A failed delivery is repeated for up to a day with the same body, so a
//! callback is taken for two; within them, a repeated one tells what is known already.

use std::time::Duration;

use chrono::NaiveDateTime;
use hmac::{Hmac, KeyInit, Mac};
use payferry_domain::{CheckId, Timestamp};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use sha2::{Sha256, Sha512};

use super::super::provider::{CallbackError, CallbackFact, Look};
use super::review::{Levels, Review};

/// The header with the signature.
const DIGEST: &str = "x-payload-digest";
/// The header that names its hash.
const DIGEST_ALG: &str = "x-payload-digest-alg";
/// A callback about something older is not taken: the last repetition comes a day after.
const AGE_MAX: Duration = Duration::from_hours(48);
/// How far the provider's clock may be ahead.
const AHEAD_MAX: Duration = Duration::from_mins(5);
/// How `createdAtMs` is written, in UTC.
const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S%.f";
/// The only callback that decides.
const REVIEWED: &str = "applicantReviewed";

/// Verifies and reads callbacks.
#[derive(Clone)]
pub(super) struct CallbackReader {
    secret: Vec<u8>,
    levels: Levels,
    /// Whether the app token is one of Sumsub's sandbox: its verdicts count only there.
    is_sandbox: bool,
}

/// A callback, as far as it is used.
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
        let at = callback.created_at_ms.as_deref().and_then(parse_time).ok_or_else(unreadable("it has no time"))?;
        let age_ms = now.millis_since(at);
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        if age_ms > millis(AGE_MAX) || age_ms < -millis(AHEAD_MAX) {
            return Err(CallbackError::Forged("it is not from now"));
        }
        if callback.r#type != REVIEWED || callback.sandbox_mode != self.is_sandbox {
            return Ok(Vec::new());
        }
        let Look::Decided(verdict) = callback.review.look(&self.levels) else { return Ok(Vec::new()) };
        let applicant = callback.applicant_id.filter(|id| !id.is_empty());
        let provider_ref = applicant.ok_or_else(unreadable("it names no applicant"))?;
        let named = callback.external_user_id.ok_or_else(unreadable("it names no user"))?;
        // Somebody else's users of the same account are no business of ours.
        let check: Option<CheckId> = named.parse().ok();
        Ok(check.map(|check| CallbackFact { check, provider_ref, verdict }).into_iter().collect())
    }

    /// SHA-1, which the provider still offers, is not taken.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), CallbackError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let digest = text(DIGEST).ok_or(CallbackError::Forged("it is not signed"))?;
        let digest = hex::decode(digest.trim()).map_err(|_| CallbackError::Forged("its signature is malformed"))?;
        let is_genuine = match text(DIGEST_ALG) {
            Some("HMAC_SHA256_HEX") => {
                let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
                mac.update(body);
                mac.verify_slice(&digest).is_ok()
            }
            Some("HMAC_SHA512_HEX") => {
                let mut mac = Hmac::<Sha512>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
                mac.update(body);
                mac.verify_slice(&digest).is_ok()
            }
            _ => return Err(CallbackError::Forged("it is signed in a way that is not taken")),
        };
        if is_genuine { Ok(()) } else { Err(CallbackError::Forged("its signature is wrong")) }
    }
}

fn parse_time(text: &str) -> Option<Timestamp> {
    NaiveDateTime::parse_from_str(text, TIME_FORMAT).ok().map(|time| time.and_utc().into())
}
