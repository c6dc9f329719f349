//! `GET /api/v1/webhook/undelivered`: lists pending and exhausted deliveries.

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::QueryFields;
use payferry_journal::webhooks::log;
use serde::Serialize;
use utoipa::ToSchema;

use super::DeliveryRecord;
use crate::http::openapi::PageParams;
use crate::http::state::AppState;

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
pub async fn undelivered(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Response, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let (total, entries) = log::undelivered(app.database(), caller.psp_id, page.limit, page.offset).await?;
    let deliveries = DeliveryRecord::of_all(&app, entries)?;
    let (limit, offset) = (page.limit, page.offset);
    let list = UndeliveredList { message: "Undelivered events", total, limit, offset, deliveries };
    Ok(Answer::ok(&list)?.into_response())
}
