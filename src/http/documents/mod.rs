//! Customers' documents over HTTP: uploaded by the customer's PSP, and read by that PSP or the operator. Here:
//! `GET /api/v1/customers/{customer_id}/documents/{kind}`, a document as it was uploaded.
//!
//! Each read is written to the audit log before the content is sent. `payferry_accounts::documents` stores and encrypts the
//! contents.

mod form;
pub mod upload;

use axum::extract::State;
use axum::response::Response;
use payferry_httpkit::{ApiError, Caller, Customers, Path, Problem};
use payferry_journal::audit::Actor;
use payferry_operator::customers::documents::Reading;

use super::state::AppState;

/// Read a document of a customer
///
/// Returns the last uploaded document of this kind. Each read is written to the audit log. Replaced documents cannot be
/// read.
#[utoipa::path(
    get, path = "/api/v1/customers/{customer_id}/documents/{kind}", tag = "Customers", operation_id = "getDocument",
    params(
        ("customer_id" = String, Path, description = "The customer's id."),
        ("kind" = String, Path, description = "proof_of_residential_address, incorporation_certificate, \
            proof_of_business_address or verification_document."),
    ),
    responses(
        (status = 200, description = "The document: PDF, PNG or JPEG, as `Content-Type` says.",
            content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "There is no such customer, or it has no such document.", body = Problem),
    ),
)]
pub async fn download(
    State(app): State<AppState>,
    caller: Caller<Customers>,
    Path((customer_id, kind)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let reading = Reading {
        database: app.database(),
        store: &app.config.documents,
        owner: Some(caller.psp_id),
        by: Actor::ApiKey(caller.key_id),
        now: app.clock().now(),
    };
    reading.read(&customer_id, &kind).await
}
