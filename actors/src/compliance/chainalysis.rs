//! KYT provider for Chainalysis' address screening over HTTP, or a compatible service: `GET /v2/entities/{address}`
//! returns the risk, `POST /v2/entities` registers an unknown address.
//!
//! Not here: retries (the screening actor holds the money and asks again). Errors never contain the provider's free
//! texts, its token or its URL.

use std::time::Duration;

use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;
use reqwest::header::HeaderValue;
use reqwest::{Client, RequestBuilder, Response};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::http::{HttpFailure, api_url, body_of, client_for, labels, send, token_header};
use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Provider name in verdicts.
const NAME: &str = "chainalysis_api";
/// Header with the token.
const TOKEN_HEADER: &str = "Token";
/// Timeout of one request; screening an unknown address takes three requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Failure of an answer that is no assessment of the address.
const MALFORMED: HttpFailure = HttpFailure::Malformed(" instead of the address's assessment");

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
#[derive(Clone, derive_more::Debug)]
#[debug("ChainalysisApi {{ decisions: {decisions:?}, .. }}")]
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
        let token = token_header(token).ok_or(ChainalysisApiError::BadToken)?;
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
    async fn assessment(&self, account: Address) -> Result<Option<Assessment>, HttpFailure> {
        let mut url = self.entities.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(&account.to_string());
        }
        let response = match self.exchange(self.client.get(url)).await {
            Err(HttpFailure::Status(404)) => return Ok(None),
            response => response?,
        };
        let body = body_of(response).await?.ok_or(MALFORMED)?;
        let assessment: Assessment = serde_json::from_slice(&body).map_err(|_| MALFORMED)?;
        let about = assessment.address.as_deref().and_then(|text| text.parse().ok());
        if about == Some(account) { Ok(Some(assessment)) } else { Err(MALFORMED) }
    }

    async fn register(&self, account: Address) -> Result<(), HttpFailure> {
        let request = self.client.post(self.entities.clone()).json(&json!({ "address": account }));
        self.exchange(request).await.map(|_| ())
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Response, HttpFailure> {
        send(request.header(TOKEN_HEADER, self.token.clone()).timeout(self.timeout), "the token").await
    }

    async fn assess(&self, account: Address) -> Result<Assessment, HttpFailure> {
        if let Some(assessment) = self.assessment(account).await? {
            return Ok(assessment);
        }
        self.register(account).await?;
        self.assessment(account).await?.ok_or(HttpFailure::NotAssessed)
    }
}

#[async_trait::async_trait]
impl KytScreener for ChainalysisApi {
    fn name(&self) -> &str {
        NAME
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let failed = |failure: HttpFailure| KytError(format!("the Chainalysis API {failure}"));
        let assessment = self.assess(request.address).await.map_err(failed)?;
        if assessment.status.as_deref().is_some_and(|status| !status.eq_ignore_ascii_case("complete")) {
            return Err(failed(HttpFailure::NotAssessed));
        }
        let level = assessment.risk.as_deref().ok_or_else(|| failed(HttpFailure::NotAssessed))?.to_ascii_lowercase();
        let decision = self.decisions.of(&level).ok_or_else(|| failed(HttpFailure::UnknownLevel))?;
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
        labels(named.filter_map(|named| named.category))
    }
}

/// Returns the URL of the entities, if a token may be sent there.
fn entities_below(base_url: &str) -> Option<Url> {
    let mut url = api_url(base_url)?;
    url.path_segments_mut().ok()?.extend(["v2", "entities"]);
    Some(url)
}
