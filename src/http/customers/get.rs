//! `GET /api/v1/customers/{customer_id}`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_httpkit::{Answer, ApiError, Caller, Path, Problem, Read};
use serde::Serialize;
use utoipa::ToSchema;

use super::{CustomerRecord, own};
use crate::http::state::AppState;

/// One customer.
#[derive(Serialize, ToSchema)]
pub struct CustomerAnswer {
    /// Result of the request.
    pub message: &'static str,
    /// The complete record.
    pub customer: CustomerRecord,
}

/// Read a customer
///
/// The complete record, with payment details and the paths of documents.
#[utoipa::path(
    get, path = "/api/v1/customers/{customer_id}", tag = "Customers", operation_id = "getCustomer",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The customer.", body = CustomerAnswer),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(customer_id): Path<String>,
) -> Result<Response, ApiError> {
    let row = own(&app, caller.psp_id, &customer_id).await?;
    let customer = CustomerRecord::read(&app, app.database().reader(), &row).await?;
    Ok(Answer::ok(&CustomerAnswer { message: "Customer", customer })?.into_response())
}
