//! `/ops/actors`: the tree, and everything of one payment.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_domain::PaymentId;
use serde_json::{Value, json};

use super::Operator;
use crate::http::error::{ApiError, FieldError};
use crate::http::extract::Path;

/// The supervision tree as it shows itself.
pub(super) async fn tree(State(operator): State<Operator>) -> Response {
    Json(operator.system.observe()).into_response()
}

/// Lets a quarantined payment run again.
pub(super) async fn release(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = payment_id_of(&payment_id)?;
    if !operator.system.release(id) {
        let detail = format!("The payment {id} is not quarantined.");
        return Err(ApiError::Conflict("payment_not_quarantined", detail, Vec::new()));
    }
    tracing::info!(payment.id = %id, "the operator released payment {id} from quarantine");
    Ok(Json(json!({"message": "The payment runs again", "payment_id": id})))
}

/// The id in a path: one that is none is the caller's mistake, not a payment that is missing.
fn payment_id_of(text: &str) -> Result<PaymentId, ApiError> {
    text.parse().map_err(|_| {
        let message = "is no payment's id, such as pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3".to_owned();
        ApiError::BadParameters(vec![FieldError { field: "payment_id".to_owned(), code: "invalid_id".into(), message }])
    })
}
