//! The webhook deliveries of a payment: `GET /payments/{payment_id}/webhooks`, and
//! `POST /payments/{payment_id}/webhooks/{delivery_id}/redeliver`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::DeliveryId;
use payferry_httpkit::{Answer, ApiError, Caller, Path, Problem, Read, Submission, Webhooks};
use payferry_journal::webhooks::log;
use serde::Serialize;
use utoipa::ToSchema;

use super::own_subject;
use crate::http::state::AppState;
use crate::http::webhooks::DeliveryRecord;

/// The delivery log of a payment.
#[derive(Serialize, ToSchema)]
pub struct DeliveryLog {
    message: &'static str,
    payment_id: String,
    /// In the order of the events.
    deliveries: Vec<DeliveryRecord>,
}

/// Read a payment's delivery log
///
/// Also returns the log of a payout or a withdrawal, by its own id.
#[utoipa::path(
    get, path = "/payments/{payment_id}/webhooks", tag = "Payments", operation_id = "getDeliveryLog",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "Every delivery with each of its attempts.", body = DeliveryLog),
        (status = 404, description = "There is no payment with this id.", body = Problem),
    ),
)]
pub async fn deliveries(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(payment_id): Path<String>,
) -> Result<Answer, ApiError> {
    let payment_id = own_subject(&app, caller.psp_id, &payment_id).await?;
    let entries = log::deliveries_of(app.database(), caller.psp_id, &payment_id).await?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    Answer::ok(&DeliveryLog { message: "Deliveries", payment_id, deliveries })
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
    ),
)]
pub async fn redeliver(
    State(app): State<AppState>,
    Path((payment_id, delivery_id)): Path<(String, String)>,
    request: Submission<Webhooks>,
) -> Result<Response, ApiError> {
    let payment_id = own_subject(&app, request.psp_id, &payment_id).await?;
    let missing = || ApiError::NotFound("delivery");
    let delivery_id = delivery_id.parse::<DeliveryId>().map_err(|_| missing())?.to_string();
    let entry = log::delivery(app.database(), request.psp_id, &delivery_id).await?;
    entry.filter(|entry| entry.delivery.payment_id == payment_id).ok_or_else(missing)?;
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    log::redeliver(&transaction, request.psp_id, &delivery_id, now).await?;
    let message = "The delivery is queued again.";
    let answer = RedeliverAnswer { message, payment_id, delivery_id, delivery_status: "queued" };
    let answered = request.idempotency.commit(&app, transaction, Answer::accepted(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}
