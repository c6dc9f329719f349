//! One attempt: sign, post, read the kept part of the answer.
//!
//! Not here: rows, and the effect of an outcome on the delivery (`delivery`).

use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, redirect};

use super::signature::{self, HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, Secret};
use super::url_guard::{self, GuardedResolver, UrlPolicy};
use super::{RESPONSE_KEPT_BYTES, WebhookConfig};

/// Idle connections kept open to one endpoint.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// URL and signing secrets of an endpoint. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    /// Newest first; two during a rotation.
    pub(super) secrets: Vec<Secret>,
}

/// Result of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) response_code: Option<u16>,
    pub(super) response_body: Option<String>,
    pub(super) retry_after: Option<Duration>,
    pub(super) error: Option<String>,
    pub(super) duration: Duration,
}

impl Outcome {
    /// Any 2xx is an acknowledgement.
    pub(super) fn is_delivered(&self) -> bool {
        self.response_code.is_some_and(|code| (200..300).contains(&code))
    }

    /// Returns `true` if the receiver seems overloaded: no answer, or a status that says so. A receiver that rejects
    /// the content does not count as overloaded.
    pub(super) fn is_strained(&self) -> bool {
        self.response_code.is_none_or(|code| code == 429 || code >= 500)
    }

    /// Short reason of a failure, without the URL; `None` if delivered.
    pub(super) fn failure(&self) -> Option<String> {
        match self.response_code {
            Some(_) if self.is_delivered() => None,
            Some(code) => Some(format!("HTTP {code}")),
            None => Some(self.error.clone().unwrap_or_default()),
        }
    }
}

/// Builds a client that follows no redirect, uses no proxy and connects only where the policy allows.
pub(super) fn client(config: &WebhookConfig) -> Result<Client, reqwest::Error> {
    payferry_runtime::tls::install();
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .timeout(config.timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .dns_resolver(GuardedResolver::new(config.url_policy))
        .user_agent(concat!("Payferry/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Posts `body` once. `now_secs` is real time.
pub(super) async fn attempt(
    client: &Client,
    policy: UrlPolicy,
    target: &Target,
    event_id: &str,
    body: String,
    now_secs: i64,
) -> Outcome {
    // Checked at every attempt, because the resolver never sees literal addresses.
    if let Err(rejection) = url_guard::check(policy, &target.url) {
        return Outcome { error: Some(format!("the URL is refused: it {rejection}")), ..Outcome::default() };
    }
    let began = Instant::now();
    let request = client
        .post(&target.url)
        .header(CONTENT_TYPE, "application/json")
        .header(HEADER_ID, event_id)
        .header(HEADER_TIMESTAMP, now_secs)
        .header(HEADER_SIGNATURE, signature::header(&target.secrets, event_id, now_secs, &body))
        .body(body);
    match request.send().await {
        Ok(response) => {
            // Only the status decides. The body is kept for people to read.
            let duration = began.elapsed();
            Outcome { duration, ..answered(response).await }
        }
        Err(error) => Outcome { error: Some(describe(&error)), duration: began.elapsed(), ..Outcome::default() },
    }
}

async fn answered(mut response: Response) -> Outcome {
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| parse_retry_after(value.to_str().ok()?));
    let response_code = Some(response.status().as_u16());
    let mut kept = Vec::new();
    while kept.len() < RESPONSE_KEPT_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        kept.extend_from_slice(&chunk[..chunk.len().min(RESPONSE_KEPT_BYTES - kept.len())]);
    }
    Outcome { response_code, response_body: Some(text_of(&kept)), retry_after, ..Outcome::default() }
}

/// Parses seconds or a date. A date in the past is ignored.
fn parse_retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(secs) = value.parse() {
        return Some(Duration::from_secs(secs));
    }
    let at = chrono::DateTime::parse_from_rfc2822(value).ok()?;
    (at.to_utc() - chrono::Utc::now()).to_std().ok()
}

/// Converts the bytes to text of at most [`RESPONSE_KEPT_BYTES`] without a truncated last character.
fn text_of(kept: &[u8]) -> String {
    // Not every database stores U+0000 in text.
    let mut text = String::from_utf8_lossy(kept).replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(RESPONSE_KEPT_BYTES));
    text
}

/// Describes the error without the URL, which may contain a token.
fn describe(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let what = if error.is_connect() { "could not connect" } else { "the connection failed during the exchange" };
    format!("{what}: {deepest}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parses_both_formats_of_retry_after() {
        assert_eq!(parse_retry_after(" 120 "), Some(Duration::from_mins(2)));
        let at = chrono::Utc::now() + chrono::TimeDelta::seconds(90);
        let asked = parse_retry_after(&at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap();
        assert!((88..=90).contains(&asked.as_secs()), "{asked:?}");
        for nothing in ["Wed, 21 Oct 2015 07:28:00 GMT", "-5", "soon", ""] {
            assert_eq!(parse_retry_after(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn kept_response_body_is_storable_and_bounded() {
        assert_eq!(text_of("a\0b".as_bytes()), "a\u{fffd}b");
        assert_eq!(text_of(&vec![0; RESPONSE_KEPT_BYTES]).len(), RESPONSE_KEPT_BYTES - 1, "three bytes each");
        let cut = "ü".repeat(RESPONSE_KEPT_BYTES);
        assert!(text_of(&cut.as_bytes()[..RESPONSE_KEPT_BYTES - 1]).len() <= RESPONSE_KEPT_BYTES);
    }

    #[test]
    fn only_receiver_failures_count_as_strain() {
        let answered = |code| Outcome { response_code: Some(code), ..Outcome::default() };
        assert!([429, 500, 503].into_iter().all(|code| answered(code).is_strained()));
        assert!([200, 302, 400, 404, 410].into_iter().all(|code| !answered(code).is_strained()));
        assert!(Outcome::default().is_strained());
        assert_eq!(answered(404).failure().as_deref(), Some("HTTP 404"));
        assert_eq!(answered(204).failure(), None);
    }
}
