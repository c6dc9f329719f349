//! `/ops/customers/{customer_id}/documents/{kind}`: a customer's document, as uploaded.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::customers::audit::Actor;

use super::Operator;
use crate::http::documents::download::Reading;
use crate::http::error::ApiError;
use crate::http::extract::Path;

/// Returns a document of any PSP's customer. Each access is written to the audit log.
pub(super) async fn read(
    State(operator): State<Operator>,
    Path((customer_id, kind)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let reading = Reading {
        database: operator.system.database(),
        store: &operator.documents,
        owner: None,
        by: Actor::Operator,
        now: operator.system.clock().now(),
    };
    reading.read(&customer_id, &kind).await
}
