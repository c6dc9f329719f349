//! One attempt: sign, post, read what is kept of the answer.

use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, redirect};

use super::signature::{self, HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, Secret};
use super::url_guard::GuardedResolver;
use super::{RESPONSE_KEPT_BYTES, WebhookConfig};

/// Idle connections kept to one endpoint.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// Where an event goes and how it is signed. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    /// The newest first; two while a rotation lasts.
    pub(super) secrets: Vec<Secret>,
}

/// What came of an attempt.
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
        self.error.is_none() && self.response_code.is_some_and(|code| (200..300).contains(&code))
    }
}

/// A client that follows no redirect, uses no proxy and connects only where the policy allows.
pub(super) fn client(config: &WebhookConfig) -> Result<Client, reqwest::Error> {
    crate::tls::install();
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .timeout(config.timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .dns_resolver(GuardedResolver::new(config.url_policy))
        .user_agent(concat!("Payferry/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Posts `body` once. `now_secs` is the real time.
pub(super) async fn attempt(client: &Client, target: &Target, event_id: &str, body: &str, now_secs: i64) -> Outcome {
    let began = Instant::now();
    let request = client
        .post(&target.url)
        .header(CONTENT_TYPE, "application/json")
        .header(HEADER_ID, event_id)
        .header(HEADER_TIMESTAMP, now_secs)
        .header(HEADER_SIGNATURE, signature::header(&target.secrets, event_id, now_secs, body))
        .body(body.to_owned());
    let mut outcome = match request.send().await {
        Ok(response) => answered(response).await,
        Err(error) => Outcome { error: Some(describe(&error)), ..Outcome::default() },
    };
    outcome.duration = began.elapsed();
    outcome
}

async fn answered(mut response: Response) -> Outcome {
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let mut outcome = Outcome {
        response_code: Some(response.status().as_u16()),
        retry_after: retry_after.map(Duration::from_secs),
        ..Outcome::default()
    };
    let mut kept = Vec::new();
    while kept.len() < RESPONSE_KEPT_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => kept.extend_from_slice(&chunk[..chunk.len().min(RESPONSE_KEPT_BYTES - kept.len())]),
            Ok(None) => break,
            Err(error) => {
                outcome.error = Some(describe(&error));
                break;
            }
        }
    }
    // U+0000 cannot be stored as text everywhere.
    outcome.response_body = Some(String::from_utf8_lossy(&kept).replace('\0', "\u{fffd}"));
    outcome
}

/// What went wrong, without the URL: it may carry a token.
fn describe(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let what = if error.is_connect() { "could not connect" } else { "the exchange broke off" };
    format!("{what}: {deepest}")
}
