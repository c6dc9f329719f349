//! Deliveries of one payment (`GET /payments/{payment_id}/webhooks`,
//! `POST /payments/{payment_id}/webhooks/{delivery_id}/redeliver`) and of all events
//! (`GET /api/v1/webhook/undelivered`, and `POST /api/v1/webhook/redeliver`, which redelivers in bulk after an outage of
//! the endpoint).

use axum::extract::State;
use axum::response::Response;
use payferry_domain::payment::EventPattern;
use payferry_domain::{DeliveryId, EndpointId, PspId, Timestamp};
use payferry_entities::{DeliveryStatus, delivery_attempts};
use payferry_httpkit::extract::RequestBody as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{
    Answer, ApiError, Fault, Path, Problem, QueryFields, Read, Submission, Webhooks, read, request, rule,
};
use payferry_journal::webhooks::log::{self, LogEntry, Slice};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::catalogue::Event;
use super::endpoint::Patterns;
use crate::http::payments;
use crate::http::state::{AppShared, AppState, ChangeOf, ListOf, OneOf};

record! {
    fn of(app: &AppShared, entry: LogEntry) -> Result<Self, ApiError> {
        let LogEntry { delivery, event, attempts } = entry;
        let psp_id: PspId = delivery.psp_id.parse().map_err(ApiError::internal)?;
        let endpoint_id = delivery.endpoint_id.unwrap_or_else(|| EndpointId::first_of(psp_id).to_string());
        // The sender clears its mark a moment after the outcome was recorded.
        let under_way = delivery.status.is_open() && app.system.webhooks().is_under_way(&delivery.id);
        let failure = (delivery.status != DeliveryStatus::Delivered)
            .then(|| failure(delivery.response_code, delivery.error.as_deref()))
            .flatten();
    }

    /// A delivery of one event.
    #[derive(Debug)]
    pub struct DeliveryRecord {
        #[schema(example = "whd_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = delivery.id,
        /// The endpoint that it is for.
        #[schema(example = "we_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        endpoint_id: String = endpoint_id,
        payment_id: String = delivery.payment_id,
        /// The `webhook-id` of every attempt.
        event_id: String = event.id,
        #[schema(example = "payment.confirmed")]
        event: String = event.name,
        /// Sequence number of the event, without gaps per payment in the feed.
        sequence: i64 = event.sequence,
        /// URL of the last attempt; null before the first.
        url: Option<String> = delivery.url,
        /// queued, delivering, delivered, failed (will be retried), exhausted, or cancelled (its endpoint was deleted).
        delivery_status: &'static str = if under_way { "delivering" } else { delivery.status.as_str() },
        attempt_count: i64 = delivery.attempt_count,
        /// HTTP status of the last answer.
        response_code: Option<i64> = delivery.response_code,
        /// First 1 KiB of the last answer.
        response_body: Option<String> = delivery.response_body,
        duration_ms: Option<i64> = delivery.duration_ms,
        /// Error of the last attempt, if it got no answer.
        error: Option<String> = delivery.error,
        /// refused (the endpoint did not answer 2xx) or unanswered; of the last attempt, null unless that failed.
        failure_reason: Option<&'static str> = failure.as_ref().map(|failure| failure.0),
        /// The failure reason in words.
        failure: Option<String> = failure.map(|failure| failure.1),
        next_attempt_at: Option<DateTime> = delivery.next_attempt_at.map(DateTime),
        /// The body, as it is signed and sent.
        #[schema(value_type = Event)]
        payload: Box<RawValue> = RawValue::from_string(event.payload)?,
        attempts: Vec<AttemptRecord> = attempts.into_iter().map(AttemptRecord::of).collect(),
        created_at: DateTime = DateTime(delivery.created_at),
        updated_at: DateTime = DateTime(delivery.updated_at),
    }
}

record! {
    fn of(attempt: delivery_attempts::Model) {}

    /// One attempt at a delivery.
    #[derive(Debug)]
    struct AttemptRecord {
        /// Number of the attempt, from 1.
        number: i64 = attempt.number,
        at: DateTime = DateTime(attempt.at),
        url: String = attempt.url,
        response_code: Option<i64> = attempt.response_code,
        response_body: Option<String> = attempt.response_body,
        duration_ms: i64 = attempt.duration_ms,
        error: Option<String> = attempt.error,
    }
}

/// Code and words of the failure of an attempt; `None` if it had no outcome yet.
fn failure(response_code: Option<i64>, error: Option<&str>) -> Option<(&'static str, String)> {
    match (response_code, error) {
        (Some(code), _) => Some(("refused", format!("The endpoint answered {code}."))),
        (None, Some(error)) => Some(("unanswered", error.to_owned())),
        (None, None) => None,
    }
}

impl DeliveryRecord {
    /// The entries of a delivery log.
    pub fn of_all(app: &AppShared, entries: Vec<LogEntry>) -> Result<Vec<Self>, ApiError> {
        entries.into_iter().map(|entry| Self::of(app, entry)).collect()
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
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Oldest first.
    deliveries: Vec<DeliveryRecord>,
}

/// List what is not delivered
///
/// Queued, waiting for a retry, or exhausted; oldest first.
#[utoipa::path(
    get, path = "/api/v1/webhook/undelivered", tag = "Webhooks", operation_id = "listUndelivered", params(PageParams),
    responses((status = 200, description = "A page of deliveries.", body = UndeliveredList), UnreadableQuery),
)]
pub async fn undelivered(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, query) = parts;
    let page = Page::read("undelivered", query)?;
    let slice = Slice { after: page.after.clone(), limit: page.rows_max(), offset: page.offset };
    let (total, mut entries) = log::undelivered(app.database(), caller.psp_id, slice).await?;
    let next_cursor = page.next_cursor(&mut entries, LogEntry::key)?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&UndeliveredList { message: "Undelivered events", total, limit, offset, next_cursor, deliveries })
}

request! {
    /// Filter of the deliveries.
    pub struct RedeliverRequest {
        /// Events created at or after this time.
        from: Timestamp = required(rule::moment()),
        /// Events created before this time.
        to: Timestamp = required(rule::moment()),
        /// Patterns such as `payment.*`; all events if absent.
        events: Option<Vec<EventPattern>> = Patterns,
        /// Only deliveries to this endpoint.
        endpoint_id: Option<EndpointId> = optional(rule::id()),
    }
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
/// The deliveries are queued again with all their retries, whatever their status, except those whose endpoint was deleted.
#[utoipa::path(
    post, path = "/api/v1/webhook/redeliver", tag = "Webhooks", operation_id = "redeliverInBulk", request_body = RedeliverRequest,
    responses(
        (status = 202, description = "They are queued.", body = BulkRedeliverAnswer),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn redeliver_all(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let RedeliverRequest { from, to, events, endpoint_id } = request.read(|body| {
        let asked = RedeliverRequest::read(body);
        let (from, to) = (body.valid("from", read::moment), body.valid("to", read::moment));
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            body.fault("to", Fault::new("not_after_from", "must be after `from`"));
        }
        asked
    })?;
    let patterns = events.unwrap_or_default();
    let chosen = log::choose(app.database(), request.psp_id, from, to, &patterns, endpoint_id).await?;
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    let redelivered = log::redeliver_all(&transaction, request.psp_id, &chosen.delivery_ids, now).await?;
    let continue_from = chosen.continue_from.map(|from| from.to_string());
    let answer = BulkRedeliverAnswer { message: "The deliveries are queued again.", redelivered, continue_from };
    let answered = request.idempotency.commit(transaction, Answer::accepted(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}

/// A page of the delivery log of a payment.
#[derive(Serialize, ToSchema)]
pub struct DeliveryLog {
    message: &'static str,
    payment_id: String,
    /// Number of deliveries in the whole log.
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// In the order of the events.
    deliveries: Vec<DeliveryRecord>,
}

/// Read a payment's delivery log
///
/// Also returns the log of a payout or a withdrawal, by its own id.
#[utoipa::path(
    get, path = "/payments/{payment_id}/webhooks", tag = "Payments", operation_id = "getDeliveryLog",
    params(("payment_id" = String, Path, description = "The id from `initiate`."), PageParams),
    responses(
        (status = 200, description = "Deliveries with each of their attempts.", body = DeliveryLog),
        (status = 404, description = "There is no payment with this id.", body = Problem),
        UnreadableQuery,
    ),
)]
pub async fn deliveries(parts: OneOf<Read>, query: QueryFields) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    let page = Page::read("deliveries", query)?;
    let payment_id = payments::own_subject(&app, caller.psp_id, &payment_id).await?;
    let slice = Slice { after: page.after.clone(), limit: page.rows_max(), offset: page.offset };
    let (total, mut entries) = log::deliveries_of(app.database(), caller.psp_id, &payment_id, slice).await?;
    let next_cursor = page.next_cursor(&mut entries, LogEntry::key)?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    let (limit, offset) = (page.limit, page.offset);
    let message = "Deliveries";
    Answer::ok(&DeliveryLog { message, payment_id, total, limit, offset, next_cursor, deliveries })
}

/// The queued delivery.
#[derive(Serialize, ToSchema)]
pub struct RedeliverAnswer {
    message: &'static str,
    payment_id: String,
    delivery_id: String,
    /// Always queued.
    delivery_status: &'static str,
}

/// Deliver an event again
///
/// The delivery is queued again with all its retries, whatever its status, and keeps its `event_id`.
#[utoipa::path(
    post, path = "/payments/{payment_id}/webhooks/{delivery_id}/redeliver", tag = "Payments", operation_id = "redeliver",
    params(
        ("payment_id" = String, Path, description = "The id from `initiate`."),
        ("delivery_id" = String, Path, description = "The `id` of an entry of the delivery log."),
    ),
    responses(
        (status = 202, description = "It is queued.", body = RedeliverAnswer),
        (status = 404, description = "There is no such delivery of this payment.", body = Problem),
        (status = 409, description = "`endpoint_deleted`.", body = Problem),
    ),
)]
pub async fn redeliver(parts: ChangeOf<Webhooks, (String, String)>) -> Result<Response, ApiError> {
    let (State(app), Path((payment_id, delivery_id)), request) = parts;
    let payment_id = payments::own_subject(&app, request.psp_id, &payment_id).await?;
    let missing = || ApiError::NotFound("delivery");
    let delivery_id = delivery_id.parse::<DeliveryId>().map_err(|_| missing())?.to_string();
    let entry = log::delivery(app.database(), request.psp_id, &delivery_id).await?;
    entry.filter(|entry| entry.delivery.payment_id == payment_id).ok_or_else(missing)?;
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    if !log::redeliver(&transaction, request.psp_id, &delivery_id, now).await? {
        return Err(ApiError::conflict("endpoint_deleted", "The endpoint of this delivery was deleted."));
    }
    let message = "The delivery is queued again.";
    let answer = RedeliverAnswer { message, payment_id, delivery_id, delivery_status: DeliveryStatus::Queued.as_str() };
    let answered = request.idempotency.commit(transaction, Answer::accepted(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}
