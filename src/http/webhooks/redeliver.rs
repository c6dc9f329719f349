//! `POST /api/v1/webhook/redeliver`: redelivers in bulk after an outage of the endpoint.

use axum::extract::State;
use axum::response::Response;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Webhooks;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Submission, read};
use payferry_journal::webhooks::log;
use serde::Serialize;
use utoipa::ToSchema;

use super::patterns;
use crate::http::state::AppState;

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
