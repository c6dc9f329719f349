//! KYT provider for Chainalysis' address screening over HTTP, or a compatible service: `GET /v2/entities/{address}`
//! returns the risk, `POST /v2/entities` registers an unknown address.
//!
//! Not here: retries (the screening actor holds the money and asks again). Errors never contain the provider's free
//! texts, its token or its URL.

use std::fmt;
use std::time::Duration;

use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;
use reqwest::header::HeaderValue;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::http::{api_url, body_of, client_for};
use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Provider name in verdicts.
const NAME: &str = "chainalysis_api";
/// Header with the token.
const TOKEN_HEADER: &str = "Token";
/// Timeout of one request; screening an unknown address takes three requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of categories kept as flags.
const FLAGS_MAX: usize = 16;
/// Maximum length of a flag, characters.
const FLAG_CHARS_MAX: usize = 48;

/// Reasons for an unusable configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainalysisApiError {
    /// A token must not be sent to this URL.
    #[error("the KYT provider's URL must use https://, or http:// on this machine, without user, query or fragment")]
    BadUrl,
    /// The token is not a valid header value.
    #[error("the KYT provider's token is empty or contains characters that are not allowed in a header")]
    BadToken,
    /// The HTTP client could not be built.
    #[error("the HTTP client for the KYT provider could not be built")]
    NoClient,
}

/// Decisions by risk level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskDecisions {
    /// Sanctions and similar.
    pub severe: Decision,
    /// High risk.
    pub high: Decision,
    /// Medium risk.
    pub medium: Decision,
    /// Low risk, or no known risk.
    pub low: Decision,
}

impl Default for RiskDecisions {
    fn default() -> Self {
        Self { severe: Decision::Block, high: Decision::Review, medium: Decision::Allow, low: Decision::Allow }
    }
}

/// Screens senders by Chainalysis. `Debug` shows neither the token nor the URL.
#[derive(Clone)]
pub struct ChainalysisApi {
    client: Client,
    entities: Url,
    token: HeaderValue,
    timeout: Duration,
    decisions: RiskDecisions,
    clock: Clock,
}

impl ChainalysisApi {
    /// Creates a provider at `base_url`, the parent of `v2/entities`: `https://api.chainalysis.com/api/risk`.
    pub fn new(base_url: &str, token: &str, clock: Clock) -> Result<Self, ChainalysisApiError> {
        let entities = entities_below(base_url).ok_or(ChainalysisApiError::BadUrl)?;
        let mut token = HeaderValue::from_str(token.trim()).map_err(|_| ChainalysisApiError::BadToken)?;
        if token.is_empty() {
            return Err(ChainalysisApiError::BadToken);
        }
        token.set_sensitive(true);
        let client = client_for(&entities).map_err(|_| ChainalysisApiError::NoClient)?;
        let decisions = RiskDecisions::default();
        Ok(Self { client, entities, token, timeout: REQUEST_TIMEOUT, decisions, clock })
    }

    /// Replaces the request timeout of 3 seconds. An unknown address takes three requests.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Replaces the default decisions.
    #[must_use]
    pub const fn with_decisions(mut self, decisions: RiskDecisions) -> Self {
        self.decisions = decisions;
        self
    }

    /// Returns the assessment of an address; `None` if it is not registered.
    async fn assessment(&self, account: Address) -> Result<Option<Assessment>, ChainalysisFailure> {
        let mut url = self.entities.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(&account.to_string());
        }
        let response = self.exchange(self.client.request(Method::GET, url)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let body = body_of(good(response)?).await?.ok_or(ChainalysisFailure::Malformed)?;
        let assessment: Assessment = serde_json::from_slice(&body).map_err(|_| ChainalysisFailure::Malformed)?;
        let about = assessment.address.as_deref().and_then(|text| text.parse().ok());
        if about == Some(account) { Ok(Some(assessment)) } else { Err(ChainalysisFailure::Malformed) }
    }

    async fn register(&self, account: Address) -> Result<(), ChainalysisFailure> {
        let request = self.client.request(Method::POST, self.entities.clone()).json(&json!({ "address": account }));
        good(self.exchange(request).await?).map(|_| ())
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Response, ChainalysisFailure> {
        Ok(request.header(TOKEN_HEADER, self.token.clone()).timeout(self.timeout).send().await?)
    }

    async fn assess(&self, account: Address) -> Result<Assessment, ChainalysisFailure> {
        if let Some(assessment) = self.assessment(account).await? {
            return Ok(assessment);
        }
        self.register(account).await?;
        self.assessment(account).await?.ok_or(ChainalysisFailure::NotAssessed)
    }
}

impl fmt::Debug for ChainalysisApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainalysisApi").field("decisions", &self.decisions).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl KytScreener for ChainalysisApi {
    fn name(&self) -> &str {
        NAME
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let trouble = |trouble: ChainalysisFailure| KytError(format!("the Chainalysis API {trouble}"));
        let assessment = self.assess(request.address).await.map_err(trouble)?;
        if assessment.status.as_deref().is_some_and(|status| !status.eq_ignore_ascii_case("complete")) {
            return Err(trouble(ChainalysisFailure::NotAssessed));
        }
        let level =
            assessment.risk.as_deref().ok_or_else(|| trouble(ChainalysisFailure::NotAssessed))?.to_ascii_lowercase();
        let decision = self.decisions.of(&level).ok_or_else(|| trouble(ChainalysisFailure::UnknownLevel))?;
        let verdict = verdict::bare(NAME, decision, self.clock.now());
        Ok(Verdict { risk_level: Some(level), flags: assessment.flags(), ..verdict })
    }
}

impl RiskDecisions {
    fn of(self, level: &str) -> Option<Decision> {
        match level {
            "severe" => Some(self.severe),
            "high" => Some(self.high),
            "medium" => Some(self.medium),
            "low" => Some(self.low),
            _ => None,
        }
    }
}

/// Reasons for a missing verdict. They contain neither the token nor the URL nor text from the provider.
#[derive(Debug, thiserror::Error)]
enum ChainalysisFailure {
    #[error("did not answer in time")]
    Timeout,
    #[error("cannot be reached")]
    Unreachable,
    #[error("limits the rate of requests (HTTP 429)")]
    RateLimited,
    #[error("refuses the token (HTTP {0})")]
    TokenRefused(u16),
    #[error("answered HTTP {0}")]
    Status(u16),
    #[error("returned an unexpected answer instead of the address's assessment")]
    Malformed,
    #[error("has not assessed the address yet")]
    NotAssessed,
    #[error("returned an unknown risk level")]
    UnknownLevel,
}

impl From<reqwest::Error> for ChainalysisFailure {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() { Self::Timeout } else { Self::Unreachable }
    }
}

/// Answer of `GET /v2/entities/{address}`; only the used fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assessment {
    address: Option<String>,
    risk: Option<String>,
    status: Option<String>,
    cluster: Option<Categorised>,
    address_identifications: Option<Vec<Categorised>>,
    triggers: Option<Vec<Categorised>>,
}

#[derive(Deserialize)]
struct Categorised {
    category: Option<String>,
}

impl Assessment {
    /// Returns the categories that the provider names, as words: `sanctioned_entity`.
    fn flags(self) -> Vec<String> {
        let named = self.cluster.into_iter();
        let named = named.chain(self.address_identifications.into_iter().flatten());
        let named = named.chain(self.triggers.into_iter().flatten());
        let mut flags = Vec::new();
        for category in named.filter_map(|named| named.category) {
            let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            let flag: String = category.trim().chars().take(FLAG_CHARS_MAX).map(word).collect();
            if !flag.is_empty() && !flags.contains(&flag) && flags.len() < FLAGS_MAX {
                flags.push(flag);
            }
        }
        flags
    }
}

/// Returns the URL of the entities, if a token may be sent there.
fn entities_below(base_url: &str) -> Option<Url> {
    let mut url = api_url(base_url)?;
    url.path_segments_mut().ok()?.extend(["v2", "entities"]);
    Some(url)
}

fn good(response: Response) -> Result<Response, ChainalysisFailure> {
    match response.status().as_u16() {
        200..300 => Ok(response),
        429 => Err(ChainalysisFailure::RateLimited),
        status @ (401 | 403) => Err(ChainalysisFailure::TokenRefused(status)),
        status => Err(ChainalysisFailure::Status(status)),
    }
}
