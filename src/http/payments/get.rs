//! `GET /payments/{payment_id}`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Path;

use super::{PaymentRecord, own};
use crate::http::state::AppState;

/// Read a payment
///
/// The authoritative state of a payment, independent of webhooks.
#[utoipa::path(
    get, path = "/payments/{payment_id}", tag = "Payments", operation_id = "getPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "The complete payment.", body = PaymentRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(payment_id): Path<String>,
) -> Result<Response, ApiError> {
    let row = own(&app, caller.psp_id, &payment_id).await?;
    let payment = payferry_journal::payments::payment_of(&row)?;
    Ok(Answer::ok(&PaymentRecord::of(&app, &payment))?.into_response())
}
