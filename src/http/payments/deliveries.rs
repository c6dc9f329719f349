//! `GET /payments/{payment_id}/webhooks`: the webhook deliveries of a payment.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Path;
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
) -> Result<Response, ApiError> {
    let payment_id = own_subject(&app, caller.psp_id, &payment_id).await?;
    let entries = log::deliveries_of(app.database(), caller.psp_id, &payment_id).await?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    Ok(Answer::ok(&DeliveryLog { message: "Deliveries", payment_id, deliveries })?.into_response())
}
