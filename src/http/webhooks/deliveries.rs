//! Deliveries of all events: `GET /api/v1/webhook/undelivered`, and `POST /api/v1/webhook/redeliver`, which redelivers in
//! bulk after an outage of the endpoint.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use payferry_domain::Timestamp;
use payferry_entities::delivery_attempts;
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Problem, QueryFields, Read, Submission, Webhooks, read};
use payferry_journal::webhooks::log::{self, LogEntry};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::patterns;
use crate::http::lists::PageParams;
use crate::http::state::{AppState, Shared};

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

/// A page of deliveries.
#[derive(Serialize, ToSchema)]
pub struct UndeliveredList {
    message: &'static str,
    /// Number of deliveries in the whole list.
    total: u64,
    limit: u64,
    offset: u64,
    /// Oldest first.
    deliveries: Vec<DeliveryRecord>,
}

/// List what is not delivered
///
/// Queued, waiting for a retry, or exhausted; oldest first.
#[utoipa::path(
    get, path = "/api/v1/webhook/undelivered", tag = "Webhooks", operation_id = "listUndelivered", params(PageParams),
    responses(
        (status = 200, description = "A page of deliveries.", body = UndeliveredList),
        (status = 400, description = "Parameters that cannot be read, all named.", body = Problem),
    ),
)]
pub async fn undelivered(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let (total, entries) = log::undelivered(app.database(), caller.psp_id, page.limit, page.offset).await?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&UndeliveredList { message: "Undelivered events", total, limit, offset, deliveries })
}

/// Filter of the deliveries.
#[derive(ToSchema)]
pub struct RedeliverRequest {
    /// Events created at or after this time.
    #[schema(format = "date-time")]
    pub from: String,
    /// Events created before this time.
    #[schema(format = "date-time")]
    pub to: String,
    /// Patterns such as `payment.*`; all events if absent.
    pub events: Option<Vec<String>>,
}

/// Result of a bulk redelivery.
#[derive(Serialize, ToSchema)]
pub struct BulkRedeliverAnswer {
    message: &'static str,
    /// Number of deliveries that were queued again.
    redelivered: u64,
    /// If there are more: the `from` of the next request, ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    continue_from: Option<String>,
}

/// Deliver events again, in bulk
///
/// The deliveries are queued again with all their retries, whatever their status.
#[utoipa::path(
    post, path = "/api/v1/webhook/redeliver", tag = "Webhooks", operation_id = "redeliverInBulk", request_body = RedeliverRequest,
    responses(
        (status = 202, description = "They are queued.", body = BulkRedeliverAnswer),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn redeliver(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let (from, to, patterns) = request.read(|body| {
        let from = body.required("from", read::moment);
        let to = body.required("to", read::moment);
        let patterns = body.optional("events", patterns);
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            body.fault("to", Fault::new("not_after_from", "must be after `from`"));
        }
        Some((from?, to?, patterns.unwrap_or_default()))
    })?;
    let chosen = log::choose(app.database(), request.psp_id, from, to, &patterns).await?;
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    let redelivered = log::redeliver_all(&transaction, request.psp_id, &chosen.delivery_ids, now).await?;
    let continue_from = chosen.continue_from.map(|from| from.to_string());
    let answer = BulkRedeliverAnswer { message: "The deliveries are queued again.", redelivered, continue_from };
    let answered = request.idempotency.commit(&app, transaction, Answer::accepted(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}
