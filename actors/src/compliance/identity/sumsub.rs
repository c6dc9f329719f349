//! Identity provider for Sumsub over HTTP, or a compatible service.
//!
//! Based on its public documentation:
//! - signed requests: <https://docs.sumsub.com/reference/authentication>
//! - one applicant per check, whose `externalUserId` is our check id and therefore unique:
//!   <https://docs.sumsub.com/reference/create-applicant>,
//!   <https://docs.sumsub.com/reference/get-applicant-data-via-externaluserid>
//! - the link for the person: <https://docs.sumsub.com/reference/generate-websdk-external-link>
//! - a screening, whose applicant is created with its data and submitted for a check immediately:
//!   <https://docs.sumsub.com/reference/request-applicant-check>
//! - results: <https://docs.sumsub.com/reference/get-applicant-review-status>,
//!   <https://docs.sumsub.com/docs/receive-and-interpret-results-via-api>,
//!   <https://docs.sumsub.com/docs/applicant-statuses>
//! - callbacks: in [`callback`].
//!
//! Not here: retries (the compliance service repeats requests). Errors never contain the provider's free texts, secrets
//! or personal data.

mod callback;
mod review;

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use payferry_domain::{CheckId, Timestamp};
use payferry_runtime::clock::Clock;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::Sha256;
use url::Url;

use self::callback::CallbackReader;
use self::review::{Levels, Review};
use super::provider::{
    CallbackError, CallbackFact, CheckRequest, IdentityError, IdentityProvider, IdentitySubject, ProviderCheckStatus,
    StartedCheck,
};
use crate::compliance::http::{HttpFailure, api_url, body_of, client_for, send, token_header};

/// Provider name in rows, in the audit log and in the path of callbacks.
pub const SUMSUB_PROVIDER: &str = "sumsub";
/// Lifetime of a verification link.
const LINK_LIFETIME: Duration = Duration::from_hours(7 * 24);
/// Usual time until a requested screening is decided.
const RESCREEN_LOOK_AFTER: Duration = Duration::from_secs(10);
/// Prefix of app tokens of Sumsub's own sandbox, whose verdicts are meaningless in production.
const SANDBOX_TOKEN_PREFIX: &str = "sbx:";
/// Credentials that the provider refuses with 401 or 403.
const CREDENTIALS: &str = "the app token, its permissions or the signature";
const MALFORMED: HttpFailure = HttpFailure::Malformed("");

/// Configuration of Sumsub. `Debug` shows no secret.
#[derive(Clone, derive_more::Debug)]
#[debug("SumsubSettings {{ level: {level:?}, rescreen_level: {rescreen_level:?}, .. }}")]
pub struct SumsubSettings {
    /// URL of the API: `https://api.sumsub.com`.
    pub base_url: String,
    /// The app token.
    pub app_token: String,
    /// Secret key of the app token.
    pub secret_key: String,
    /// Secret that signs callbacks.
    pub callback_secret: String,
    /// Level of verifications.
    pub level: String,
    /// Level of screenings: it must require only data, no documents.
    pub rescreen_level: String,
    /// Timeout of one request; a check takes up to four.
    pub timeout: Duration,
}

/// Reasons for an unusable configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SumsubError {
    /// A token must not be sent to this URL.
    #[error(
        "the identity provider's URL must use https://, or http:// on this machine, without user, query or fragment"
    )]
    BadUrl,
    /// The token cannot be sent.
    #[error("the identity provider's app token is empty or contains characters that are not allowed in a header")]
    BadToken,
    /// Anyone could sign with an empty secret.
    #[error("a secret of the identity provider is empty")]
    EmptySecret,
    /// Callbacks of the two levels would be indistinguishable.
    #[error("the identity provider's two levels must be set and must differ")]
    BadLevels,
    /// The HTTP client could not be built.
    #[error("the HTTP client for the identity provider could not be built")]
    NoClient,
}

/// Sumsub client. `Debug` shows neither secrets nor the URL.
#[derive(Clone, derive_more::Debug)]
#[debug("Sumsub {{ levels: {levels:?}, .. }}")]
pub struct Sumsub {
    client: Client,
    api: Url,
    token: HeaderValue,
    secret_key: Vec<u8>,
    levels: Levels,
    callbacks: CallbackReader,
    timeout: Duration,
    clock: Clock,
}

impl Sumsub {
    /// Creates a provider with these settings.
    pub fn new(settings: SumsubSettings, clock: Clock) -> Result<Self, SumsubError> {
        let SumsubSettings { base_url, app_token, secret_key, callback_secret, level, rescreen_level, timeout } =
            settings;
        let api = api_url(&base_url).ok_or(SumsubError::BadUrl)?;
        let token = token_header(&app_token).ok_or(SumsubError::BadToken)?;
        let (secret_key, callback_secret) = (secret_key.trim(), callback_secret.trim());
        if secret_key.is_empty() || callback_secret.is_empty() {
            return Err(SumsubError::EmptySecret);
        }
        if level.trim().is_empty() || rescreen_level.trim().is_empty() || level == rescreen_level {
            return Err(SumsubError::BadLevels);
        }
        let client = client_for(&api).map_err(|_| SumsubError::NoClient)?;
        let levels = Levels { identity: level, rescreen: rescreen_level };
        let is_sandbox = app_token.trim().starts_with(SANDBOX_TOKEN_PREFIX);
        let callbacks = CallbackReader::new(callback_secret, levels.clone(), is_sandbox);
        Ok(Self { client, api, token, secret_key: secret_key.into(), levels, callbacks, timeout, clock })
    }

    /// Returns the applicant of a check, created with `data` if there is none yet, and whether it existed before.
    async fn applicant(&self, check: CheckId, level: &str, data: Value) -> Result<(String, bool), HttpFailure> {
        let mut body = json!({ "externalUserId": check });
        if let (Some(body), Value::Object(data)) = (body.as_object_mut(), data) {
            body.extend(data);
        }
        let path = ["resources", "applicants"];
        let made = self.call(Method::POST, &path, &[("levelName", level)], Some(&body)).await;
        let (made, existed) = match made {
            // Created before a crash and not recorded.
            Err(HttpFailure::Status(409)) => {
                let key = format!("-;externalUserId={check}");
                (self.call(Method::GET, &["resources", "applicants", &key, "one"], &[], None).await?, true)
            }
            made => (made?, false),
        };
        let applicant: Applicant = made;
        // A conflict about something else must not apply one customer's verdict to another.
        if applicant.external_user_id == check.to_string() && !applicant.id.is_empty() {
            Ok((applicant.id, existed))
        } else {
            Err(MALFORMED)
        }
    }

    async fn review(&self, applicant: &str) -> Result<Review, HttpFailure> {
        self.call(Method::GET, &["resources", "applicants", applicant, "status"], &[], None).await
    }

    async fn link(&self, check: CheckId) -> Result<Url, HttpFailure> {
        let body = json!({
            "levelName": self.levels.identity,
            "userId": check,
            "ttlInSecs": LINK_LIFETIME.as_secs(),
        });
        let path = ["resources", "sdkIntegrations", "levels", "-", "websdkLink"];
        let link: Link = self.call(Method::POST, &path, &[], Some(&body)).await?;
        Url::parse(&link.url).ok().filter(|url| ["https", "http"].contains(&url.scheme())).ok_or(MALFORMED)
    }

    async fn begin_identity(&self, request: &CheckRequest) -> Result<StartedCheck, HttpFailure> {
        let (applicant, existed) = self.applicant(request.check, &self.levels.identity, json!({})).await?;
        if existed
            && let ProviderCheckStatus::Decided(verdict) = self.review(&applicant).await?.check_status(&self.levels)
        {
            return Ok(StartedCheck::Decided { provider_ref: applicant, verdict });
        }
        let url = self.link(request.check).await?;
        Ok(StartedCheck::Open { provider_ref: applicant, url: Some(url), look_after: None })
    }

    async fn begin_rescreen(
        &self,
        request: &CheckRequest,
        subject: &IdentitySubject,
    ) -> Result<StartedCheck, HttpFailure> {
        let IdentitySubject { first_name, last_name, dob, country, phone_number } = subject;
        let mut data = json!({
            "fixedInfo": { "firstName": first_name, "lastName": last_name, "dob": dob, "country": country },
        });
        if let Some(phone_number) = phone_number {
            data["phone"] = json!(phone_number);
        }
        let (applicant, existed) = self.applicant(request.check, &self.levels.rescreen, data).await?;
        let review = if existed { Some(self.review(&applicant).await?) } else { None };
        match review.as_ref().map(|review| (review.check_status(&self.levels), review.is_waiting_for_data())) {
            Some((ProviderCheckStatus::Decided(verdict), _)) => {
                return Ok(StartedCheck::Decided { provider_ref: applicant, verdict });
            }
            // The screening is in progress.
            Some((_, false)) => {}
            Some((_, true)) | None => {
                let path = ["resources", "applicants", &applicant, "status", "pending"];
                let _: Value = self.call(Method::POST, &path, &[], None).await?;
            }
        }
        Ok(StartedCheck::Open { provider_ref: applicant, url: None, look_after: Some(RESCREEN_LOOK_AFTER) })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<T, HttpFailure> {
        let mut url = self.api.clone();
        url.path_segments_mut().map_err(|()| MALFORMED)?.extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let body = body.map(serde_json::to_vec).transpose().map_err(|_| MALFORMED)?;
        // The provider compares it with its own clock, so the sandbox's time offset is excluded.
        let at_secs = self.clock.real_now::<Timestamp>().as_millis() / 1_000;
        let signature = self.signature(at_secs, &method, &url, body.as_deref().unwrap_or_default());
        let mut request = self
            .client
            .request(method, url)
            .header("X-App-Token", self.token.clone())
            .header("X-App-Access-Ts", at_secs)
            .header("X-App-Access-Sig", signature)
            .timeout(self.timeout);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let answer = body_of(send(request, CREDENTIALS).await?).await?.ok_or(MALFORMED)?;
        serde_json::from_slice(&answer).map_err(|_| MALFORMED)
    }

    /// Computes HMAC-SHA256 over the time, the method, path and query, and the body, as lower-case hexadecimal digits.
    fn signature(&self, at_secs: i64, method: &Method, url: &Url, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret_key).expect("HMAC accepts a key of any length");
        mac.update(at_secs.to_string().as_bytes());
        mac.update(method.as_str().as_bytes());
        mac.update(url.path().as_bytes());
        if let Some(query) = url.query() {
            mac.update(b"?");
            mac.update(query.as_bytes());
        }
        mac.update(body);
        hex::encode(mac.finalize().into_bytes())
    }
}

#[async_trait::async_trait]
impl IdentityProvider for Sumsub {
    fn name(&self) -> &'static str {
        SUMSUB_PROVIDER
    }

    fn link_lifetime(&self) -> Option<Duration> {
        Some(LINK_LIFETIME)
    }

    async fn begin(&self, request: &CheckRequest) -> Result<StartedCheck, IdentityError> {
        self.begin_identity(request).await.map_err(IdentityError::from)
    }

    async fn rescreen(&self, request: &CheckRequest, subject: &IdentitySubject) -> Result<StartedCheck, IdentityError> {
        self.begin_rescreen(request, subject).await.map_err(IdentityError::from)
    }

    async fn check_status(&self, _: CheckId, provider_ref: &str) -> Result<ProviderCheckStatus, IdentityError> {
        match self.review(provider_ref).await {
            Ok(review) => Ok(review.check_status(&self.levels)),
            Err(HttpFailure::Status(404)) => Ok(ProviderCheckStatus::Lapsed),
            Err(failure) => Err(failure.into()),
        }
    }

    fn read_callback(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Vec<CallbackFact>, CallbackError> {
        self.callbacks.read(headers, body, now)
    }
}

impl From<HttpFailure> for IdentityError {
    fn from(failure: HttpFailure) -> Self {
        Self(format!("the Sumsub API {failure}"))
    }
}

/// An applicant; only the used fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Applicant {
    id: String,
    external_user_id: String,
}

/// Answer with a link.
#[derive(Deserialize)]
struct Link {
    url: String,
}
