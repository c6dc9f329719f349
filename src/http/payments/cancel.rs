//! `POST /payments/{payment_id}/cancel`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::PaymentId;
use payferry_domain::payment::{Command, Payment};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Payments;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Path, Submission};
use serde_json::json;

use super::change::Change;
use super::{PaymentRecord, own};
use crate::http::state::{AppState, Shared};

/// Cancel a payment
///
/// Only a pending payment without a recorded transfer can be cancelled. Money that arrives later makes it mismatched,
/// and can be refunded.
#[utoipa::path(
    post, path = "/payments/{payment_id}/cancel", tag = "Payments", operation_id = "cancelPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "The payment, failed with the reason `cancelled`.", body = PaymentRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
        (status = 409, description = "`payment_not_pending` or `transfer_recorded`.", body = Problem),
    ),
)]
pub async fn cancel(
    State(app): State<AppState>,
    Path(payment_id): Path<String>,
    request: Submission<Payments>,
) -> Result<Response, ApiError> {
    let row = own(&app, request.psp_id, &payment_id).await?;
    let payment_id: PaymentId = row.id.parse().map_err(ApiError::internal)?;
    let cancel = Change { payment_id, command: Command::Cancel, action: "payment.cancelled", detail: json!({}) };
    let answer = |app: &Shared, payment: &Payment| Answer::ok(&PaymentRecord::of(app, payment));
    cancel.carry_out(&app, &request, answer).await
}
