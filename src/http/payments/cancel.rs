//! `POST /payments/{payment_id}/cancel`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_actors::CommandError;
use payferry_domain::PaymentId;
use payferry_domain::payment::Command;

use super::{PaymentRecord, own};
use crate::http::answer::Answer;
use crate::http::auth::Payments;
use crate::http::error::{ApiError, Problem};
use crate::http::extract::{Path, Submission};
use crate::http::state::AppState;

/// Cancel a payment
///
/// Only a pending payment to which no transfer was recorded can be cancelled. Money that arrives later makes it
/// mismatched, and can be refunded.
#[utoipa::path(
    post, path = "/payments/{payment_id}/cancel", tag = "Payments", operation_id = "cancelPayment",
    params(("payment_id" = String, Path, description = "As `initiate` answered it.")),
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
    let id: PaymentId = row.id.parse().map_err(ApiError::internal)?;
    let kept = request.idempotency.row_of_payment(&app, |app, payment| Answer::ok(&PaymentRecord::of(app, payment)));
    match app.system.command(id, Command::Cancel, kept).await {
        Ok(payment) => Ok(Answer::ok(&PaymentRecord::of(&app, &payment))?.into_response()),
        Err(CommandError::IdempotencyKeyTaken) => request.idempotency.first_answer(&app).await,
        Err(error) => Err(error.into()),
    }
}
