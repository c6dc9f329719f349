//! Webhook configuration, the delivery log, and the feed of all events.
//!
//! The webhook sender owns the rows and the secrets, and sends the requests. This module only presents them.

pub mod events;
pub mod redeliver;
pub mod rotate;
pub mod set;
pub mod show;
pub mod test;
pub mod undelivered;

use payferry_domain::Timestamp;
use payferry_domain::payment::EventPattern;
use payferry_entities::{delivery_attempts, webhook_endpoints};
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, read};
use payferry_journal::webhooks::log::LogEntry;
use payferry_webhook::endpoints;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::state::Shared;

/// Maximum patterns of one filter; there are two dozen events.
const PATTERNS_MAX: usize = 50;

/// A delivery of one event.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryRecord {
    #[schema(example = "whd_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    id: String,
    payment_id: String,
    /// The `webhook-id` of every attempt.
    event_id: String,
    #[schema(example = "payment.confirmed")]
    event: String,
    /// Sequence number of the event, without gaps per payment in the feed.
    sequence: i64,
    /// URL of the last attempt; null before the first.
    url: Option<String>,
    /// queued, delivering, delivered, failed (will be retried) or exhausted.
    delivery_status: String,
    attempt_count: i64,
    /// HTTP status of the last answer.
    response_code: Option<i64>,
    /// First 1 KiB of the last answer.
    response_body: Option<String>,
    duration_ms: Option<i64>,
    /// Error of the last attempt, if it got no answer.
    error: Option<String>,
    #[schema(format = "date-time")]
    next_attempt_at: Option<String>,
    /// The body, as it is signed and sent.
    #[schema(value_type = Object)]
    payload: Box<RawValue>,
    attempts: Vec<AttemptRecord>,
    #[schema(format = "date-time")]
    created_at: String,
}

/// One attempt at a delivery.
#[derive(Debug, Serialize, ToSchema)]
struct AttemptRecord {
    /// Number of the attempt, from 1.
    number: i64,
    #[schema(format = "date-time")]
    at: String,
    url: String,
    response_code: Option<i64>,
    response_body: Option<String>,
    duration_ms: i64,
    error: Option<String>,
}

impl DeliveryRecord {
    /// The entries of a delivery log.
    pub fn of_all(app: &Shared, entries: Vec<LogEntry>) -> Result<Vec<Self>, ApiError> {
        let sender = app.system.webhooks();
        let record = |entry: LogEntry| {
            let LogEntry { delivery, event, attempts } = entry;
            // The sender clears its mark a moment after the outcome was recorded.
            let is_open = matches!(delivery.status.as_str(), "queued" | "failed");
            let under_way = is_open && sender.is_under_way(&delivery.id);
            Ok(Self {
                delivery_status: if under_way { "delivering".to_owned() } else { delivery.status },
                id: delivery.id,
                payment_id: delivery.payment_id,
                event_id: event.id,
                event: event.name,
                sequence: event.sequence,
                url: delivery.url,
                attempt_count: delivery.attempt_count,
                response_code: delivery.response_code,
                response_body: delivery.response_body,
                duration_ms: delivery.duration_ms,
                error: delivery.error,
                next_attempt_at: delivery.next_attempt_at.map(|at| Timestamp(at).to_string()),
                payload: RawValue::from_string(event.payload)?,
                attempts: attempts.into_iter().map(attempt_record).collect(),
                created_at: Timestamp(delivery.created_at).to_string(),
            })
        };
        entries.into_iter().map(record).collect()
    }
}

fn attempt_record(attempt: delivery_attempts::Model) -> AttemptRecord {
    AttemptRecord {
        number: attempt.number,
        at: Timestamp(attempt.at).to_string(),
        url: attempt.url,
        response_code: attempt.response_code,
        response_body: attempt.response_body,
        duration_ms: attempt.duration_ms,
        error: attempt.error,
    }
}

/// The patterns of an endpoint; an empty list means all events.
fn patterns_shown(endpoint: &webhook_endpoints::Model) -> Result<Vec<String>, ApiError> {
    let patterns = endpoints::patterns(endpoint)?;
    let all = || vec![EventPattern::All.to_string()];
    Ok(if patterns.is_empty() { all() } else { patterns.iter().map(ToString::to_string).collect() })
}

/// Reads a list of event patterns.
fn patterns(value: &Value) -> Result<Vec<EventPattern>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
    if list.is_empty() {
        return Err(Fault::new("empty", "must not be empty; [\"*\"] stands for all events"));
    }
    if list.len() > PATTERNS_MAX {
        return Err(Fault::new("too_many", format!("may have at most {PATTERNS_MAX} items")));
    }
    let expected = "*, a family such as payment.*, the name of an event such as payin.settled";
    list.iter().map(|pattern| read::name(pattern, expected)).collect()
}

/// The error if there is no URL whose secret to rotate or which to test.
fn not_set() -> ApiError {
    let detail = "No webhook URL is set; set one with PATCH /api/v1/set_webhook.".to_owned();
    ApiError::Conflict("webhook_not_set", detail, Vec::new())
}
