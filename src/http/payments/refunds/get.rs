//! `GET /payments/{payment_id}/refunds/{refund_id}`.

use axum::extract::State;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Path;

use super::RefundRecord;
use crate::http::payments::own;
use crate::http::state::AppState;

/// Read a refund
#[utoipa::path(
    get, path = "/payments/{payment_id}/refunds/{refund_id}", tag = "Payments", operation_id = "getRefund",
    params(
        ("payment_id" = String, Path, description = "The id from `initiate`."),
        ("refund_id" = String, Path, description = "The id from the refund request."),
    ),
    responses(
        (status = 200, description = "The refund.", body = RefundRecord),
        (status = 404, description = "`payment_not_found` or `refund_not_found`.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path((payment_id, refund_id)): Path<(String, String)>,
) -> Result<Answer, ApiError> {
    let row = own(&app, caller.psp_id, &payment_id).await?;
    let refund_id = refund_id.parse().map_err(|_| ApiError::NotFound("refund"))?;
    Answer::ok(&RefundRecord::find(&payferry_journal::payments::payment_of(&row)?, refund_id)?)
}
