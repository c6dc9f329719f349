//! `GET /payments/{payment_id}/refunds`.

use axum::extract::State;
use axum::http::Uri;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Path, QueryFields};
use serde::Serialize;
use utoipa::ToSchema;

use super::RefundRecord;
use crate::http::payments::own;
use crate::http::state::AppState;

/// Refunds of one payment.
#[derive(Serialize, ToSchema)]
pub struct RefundList {
    message: &'static str,
    /// Number of refunds.
    total: usize,
    limit: u64,
    offset: u64,
    /// In the order in which they were accepted.
    refunds: Vec<RefundRecord>,
}

/// List the refunds of a payment
#[utoipa::path(
    get, path = "/payments/{payment_id}/refunds", tag = "Payments", operation_id = "listRefunds",
    params(
        ("payment_id" = String, Path, description = "The id from `initiate`."),
        ("limit" = Option<u64>, Query, description = "1 to 200; default 50."),
        ("offset" = Option<u64>, Query, description = "Items to skip."),
    ),
    responses(
        (status = 200, description = "The refunds, including failed ones.", body = RefundList),
        (status = 404, description = "There is no payment with this id.", body = Problem),
    ),
)]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(payment_id): Path<String>,
    uri: Uri,
) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let row = own(&app, caller.psp_id, &payment_id).await?;
    let all = RefundRecord::all(&payferry_journal::payments::payment_of(&row)?);
    let total = all.len();
    let bound = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let refunds = all.into_iter().skip(bound(page.offset)).take(bound(page.limit)).collect();
    Answer::ok(&RefundList { message: "Refunds", total, limit: page.limit, offset: page.offset, refunds })
}
