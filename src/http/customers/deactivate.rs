//! `DELETE /api/v1/customers/{customer_id}`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_domain::customer::Command;
use payferry_httpkit::{Answer, ApiError, Caller, Customers, Path, Problem};
use payferry_journal::audit::Actor;

use super::get::CustomerAnswer;
use super::{CustomerRecord, open};
use crate::http::state::AppState;

/// Deactivate a customer
///
/// Permanent: the customer cannot be changed any more, and no new payment can name it. The record stays readable, and
/// payments in progress continue. Repeating the request changes nothing and returns the same answer.
#[utoipa::path(
    delete, path = "/api/v1/customers/{customer_id}", tag = "Customers", operation_id = "deactivateCustomer",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The record, with `is_active` false and its `wallet_address`.", body = CustomerAnswer),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn deactivate(
    State(app): State<AppState>,
    caller: Caller<Customers>,
    Path(customer_id): Path<String>,
) -> Result<Response, ApiError> {
    let mut opened = open(&app, caller.psp_id, &customer_id).await?;
    opened.apply(&Command::Deactivate, &Actor::ApiKey(caller.key_id), app.clock().now()).await?;
    let customer = CustomerRecord::read(&app, opened.transaction(), &opened.row).await?;
    let answer = Answer::ok(&CustomerAnswer { message: "Customer deactivated", customer })?;
    opened.commit().await?;
    Ok(answer.into_response())
}
