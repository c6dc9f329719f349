//! One delivery, from its turn to its outcome: read the row, sign, post, read the kept part of the answer.
//!
//! The row is read at most a second before its turn begins, so changes made while it waited count. Rows of simultaneous
//! turns are read together. A delivery that was sent but not recorded (a crash in between) is still open and is sent
//! again under the same id.
//!
//! Signatures follow the Standard Webhooks scheme (<https://www.standardwebhooks.com>): HMAC-SHA256 over
//! `{id}.{timestamp}.{body}`; secrets are encoded as `whsec_` and base64.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use hmac::{Hmac, KeyInit, Mac};
use payferry_domain::Timestamp;
use payferry_domain::webhook::RetrySchedule;
use payferry_entities::{DeliveryStatus, delivery_attempts};
use payferry_journal::DeliveryOutcome;
use payferry_runtime::trace::{Span, SpanKind, TRACEPARENT};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, redirect};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::load::IN_FLIGHT_MAX;
use super::queue::{self, Due};
use super::schedule::AfterFailure;
use super::sender::SenderContext;
use super::url_guard::{self, GuardedResolver, UrlPolicy};
use super::{RESPONSE_KEPT_BYTES, WebhookConfig};

/// Result of a delivery's turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// The delivery was attempted.
    Attempted {
        delivered: bool,
        /// The receiver seems overloaded.
        strained: bool,
        /// Reason of the failure.
        failure: Option<String>,
        /// Next due time, if it is retried.
        next_attempt_at: Option<i64>,
    },
    /// The delivery is no longer open.
    Closed,
    /// Its row could not be read; nothing was sent.
    Unread(String),
    /// Internal error; the event may have been sent. The delivery is suspended to avoid sending it forever.
    Broken(String),
}

/// Circumstances of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnOptions {
    /// A failure takes no retry.
    pub(super) is_probe: bool,
    /// Other deliveries wait for the end of this turn.
    pub(super) is_urgent: bool,
}

/// Rows of deliveries whose turns begin together; the first caller triggers the read.
pub(super) type Rows = Shared<BoxFuture<'static, Result<Arc<HashMap<String, Due>>, String>>>;

/// Returns the rows of these deliveries, which are read by one query on first use.
pub(super) fn rows(context: &Arc<SenderContext>, delivery_ids: Vec<String>) -> Rows {
    let context = Arc::clone(context);
    let read = async move {
        let found = queue::due(&context.database, &delivery_ids).await.map_err(|error| error.to_string())?;
        Ok(Arc::new(found.into_iter().map(|due| (due.id.clone(), due)).collect()))
    };
    read.boxed().shared()
}

/// Attempts the delivery. Returns the turn, and the outcome that must be recorded before the turn counts. `just_read` is its
/// row, if it was read a moment ago; otherwise it is among `rows`.
pub(super) async fn take_turn(
    context: &SenderContext,
    target: &Target,
    delivery_id: &str,
    just_read: Option<Due>,
    rows: Rows,
    TurnOptions { is_probe, is_urgent }: TurnOptions,
) -> (Turn, Option<DeliveryOutcome>) {
    let found = match just_read {
        Some(due) => Ok(Some(due)),
        None => rows.await.map(|rows| rows.get(delivery_id).cloned()),
    };
    let due = match found {
        Ok(Some(due)) if due.status.is_open() => due,
        Ok(_) => return (Turn::Closed, None),
        Err(error) => return (Turn::Unread(error), None),
    };
    let Due { id: _, event_id, status, attempt_count, retries_left, payload, created_at, traceparent } = due;
    let at: Timestamp = context.clock.real_now();
    if attempt_count == 0 {
        context.first_attempts.count(at.millis_since(Timestamp(created_at)));
    }
    let policy = context.config.url_policy;
    let mut span = Span::below(traceparent.as_deref(), "webhook.attempt", SpanKind::Client);
    span.set("event.id", || event_id.clone());
    let post = Post { event_id: &event_id, body: payload, traceparent: span.traceparent().or(traceparent) };
    let outcome = attempt(&context.client, policy, target, post, at.as_millis() / 1_000).await;
    if let Some(code) = outcome.response_code {
        span.set("http.response.status_code", || i64::from(code));
    }
    span.fail(|| outcome.failure());
    drop(span);
    let takes_no_retry = is_probe || status == DeliveryStatus::Queued;
    let Next { status, retries_left, attempt_at: next_attempt_at } =
        next(context, target.schedule, &outcome, retries_left, takes_no_retry);
    super::metrics::attempted(status.as_str(), outcome.duration);
    let (delivered, strained, failure) = (outcome.is_delivered(), outcome.is_strained(), outcome.failure());
    let attempt = row(delivery_id, attempt_count + 1, target, at, outcome);
    let outcome = DeliveryOutcome { attempt, status, retries_left, next_attempt_at, is_urgent };
    (Turn::Attempted { delivered, strained, failure, next_attempt_at }, Some(outcome))
}

/// State of a delivery after an attempt.
#[derive(Debug, Clone, Copy)]
struct Next {
    status: DeliveryStatus,
    retries_left: i64,
    attempt_at: Option<i64>,
}

fn next(
    context: &SenderContext,
    schedule: RetrySchedule,
    outcome: &Outcome,
    retries_left: i64,
    takes_no_retry: bool,
) -> Next {
    if outcome.is_delivered() {
        return Next { status: DeliveryStatus::Delivered, retries_left, attempt_at: None };
    }
    let spread: f64 = rand::random();
    match context.config.schedule.after_failure(schedule, takes_no_retry, retries_left, outcome.retry_after, spread) {
        AfterFailure::Retry { after, retries_left } => {
            let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
            let attempt_at = context.clock.real_now::<Timestamp>().plus_millis(after_ms).as_millis();
            Next { status: DeliveryStatus::Failed, retries_left, attempt_at: Some(attempt_at) }
        }
        AfterFailure::Exhausted => Next { status: DeliveryStatus::Exhausted, retries_left: 0, attempt_at: None },
    }
}

fn row(delivery_id: &str, number: i64, target: &Target, at: Timestamp, outcome: Outcome) -> delivery_attempts::Model {
    delivery_attempts::Model {
        delivery_id: delivery_id.to_owned(),
        number,
        at: at.as_millis(),
        url: target.url.clone(),
        response_code: outcome.response_code.map(i64::from),
        response_body: outcome.response_body,
        duration_ms: i64::try_from(outcome.duration.as_millis()).unwrap_or(i64::MAX),
        error: outcome.error,
    }
}

/// Marks a delivery as in progress until dropped, however its task ends.
pub(super) struct InProgress {
    context: Arc<SenderContext>,
    delivery_id: String,
}

impl InProgress {
    pub(super) fn new(context: &Arc<SenderContext>, delivery_id: &str) -> Self {
        context.under_way.insert(delivery_id.to_owned());
        Self { context: Arc::clone(context), delivery_id: delivery_id.to_owned() }
    }

    pub(super) fn delivery_id(&self) -> &str {
        &self.delivery_id
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.context.under_way.remove(&self.delivery_id);
    }
}

/// Time after which an idle connection to an endpoint is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// URL, signing secrets and schedule of an endpoint. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    /// Newest first; two during a rotation.
    pub(super) secrets: Vec<Secret>,
    pub(super) schedule: RetrySchedule,
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
        // The webhooks of a block use the connections of the block before.
        .pool_max_idle_per_host(IN_FLIGHT_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .dns_resolver(GuardedResolver::new(config.url_policy))
        .user_agent(concat!("Payferry/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// A request to an endpoint.
#[derive(Debug)]
pub(super) struct Post<'a> {
    pub(super) event_id: &'a str,
    pub(super) body: String,
    /// Context of the attempt's span; without an exporter, that of the request that caused the event.
    pub(super) traceparent: Option<String>,
}

/// Posts once. `now_secs` is real time.
pub(super) async fn attempt(
    client: &Client,
    policy: UrlPolicy,
    target: &Target,
    Post { event_id, body, traceparent }: Post<'_>,
    now_secs: i64,
) -> Outcome {
    // Checked at every attempt, because the resolver never sees literal addresses.
    let url = match url_guard::check(policy, &target.url) {
        Ok(url) => url,
        Err(rejection) => {
            return Outcome { error: Some(format!("the URL is refused: it {rejection}")), ..Outcome::default() };
        }
    };
    let began = Instant::now();
    let mut request = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(HEADER_ID, event_id)
        .header(HEADER_TIMESTAMP, now_secs)
        .header(HEADER_SIGNATURE, signature_header(&target.secrets, event_id, now_secs, &body))
        .body(body);
    if let Some(traceparent) = traceparent {
        request = request.header(TRACEPARENT, traceparent);
    }
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
pub(super) fn parse_retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(secs) = value.parse() {
        return Some(Duration::from_secs(secs));
    }
    let at = chrono::DateTime::parse_from_rfc2822(value).ok()?;
    (at.to_utc() - chrono::Utc::now()).to_std().ok()
}

/// Converts the bytes to text of at most [`RESPONSE_KEPT_BYTES`] without a truncated last character.
pub(super) fn text_of(kept: &[u8]) -> String {
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

/// Header with the event's id, identical for every attempt.
pub(super) const HEADER_ID: &str = "webhook-id";
/// Header with the attempt's time, seconds since the epoch.
pub(super) const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// Header with one or more signatures, separated by spaces.
pub(super) const HEADER_SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// A signing secret. `Debug` does not reveal it. It is overwritten when it is dropped.
#[derive(Clone, derive_more::Debug)]
#[debug("Secret")]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
}

/// The text is not a signing secret.
#[derive(Debug, thiserror::Error)]
#[error("not a signing secret")]
pub struct BadSecret;

impl Secret {
    /// A new random secret.
    pub fn generate() -> Self {
        let random = Zeroizing::new(rand::random::<[u8; SECRET_BYTES]>());
        Self { key: Zeroizing::new(random.to_vec()) }
    }

    /// Parses the format of [`Self::reveal`].
    pub fn parse(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(BadSecret)?;
        Ok(Self { key: Zeroizing::new(BASE64.decode(encoded).map_err(|_| BadSecret)?) })
    }

    /// Formats the secret as `whsec_...`, to be shown once to its owner.
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", BASE64.encode(&*self.key))
    }

    /// Signs one attempt; returns `v1,...`.
    pub fn sign(&self, event_id: &str, timestamp_secs: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC accepts a key of any length");
        mac.update(format!("{event_id}.{timestamp_secs}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

/// Builds the signature header: one signature per secret, newest first.
pub(super) fn signature_header(secrets: &[Secret], event_id: &str, timestamp_secs: i64, body: &str) -> String {
    secrets.iter().map(|secret| secret.sign(event_id, timestamp_secs, body)).collect::<Vec<_>>().join(" ")
}
