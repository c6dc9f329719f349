//! `PATCH /api/v1/customers/{customer_id}`, which changes the phone number, the only mutable field, and
//! `DELETE /api/v1/customers/{customer_id}`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::CheckId;
use payferry_domain::customer::{Command, Rejection};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::{Answer, ApiError, Customers, Fault, Path, Problem, request};
use payferry_journal::audit::Actor;

use super::particulars::Particulars;
use super::read::CustomerAnswer;
use super::{CustomerRecord, open, own, values};
use crate::http::state::{ChangeOf, OneOf};

request! {
    /// Changes of a customer. No other field is accepted.
    pub struct UpdateRequest refusing(not_accepted) {
        /// E.164.
        phone_number: String = required(values::PHONE_NUMBER).example("+14155550123"),
    }
}

fn not_accepted(_: &str) -> Fault {
    Fault::new("not_accepted", "cannot be changed: only phone_number can")
}

/// Change a customer's phone number
///
/// A different number makes the customer `pending_update` until it has been screened again, which happens
/// automatically. The same number changes nothing.
#[utoipa::path(
    patch, path = "/api/v1/customers/{customer_id}", tag = "Customers", operation_id = "updateCustomer",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    request_body = UpdateRequest,
    responses(
        (status = 200, description = "The record.", body = CustomerAnswer),
        (status = 409, description = "`customer_inactive`: the customer is deactivated.", body = Problem),
        (status = 422, description = "The number is not valid, or other fields were given: all are named.", body = Problem),
    ),
)]
pub async fn update(parts: ChangeOf<Customers>) -> Result<Response, ApiError> {
    let (State(app), Path(customer_id), request) = parts;
    // Check the owner first: other faults must not reveal anything about another PSP's customer.
    own(&app, request.psp_id, &customer_id).await?;
    let UpdateRequest { phone_number } = request.parse()?;
    let mut opened = open(&app, request.psp_id, &customer_id).await?;
    let mut particulars = Particulars::open(app.sealer(), &opened.row.id, &opened.row.particulars)?;
    if !opened.customer().is_active {
        return Err(Rejection::CustomerInactive.into());
    }
    let is_new = particulars.phone_number.as_deref() != Some(&phone_number);
    if is_new {
        particulars.phone_number = Some(phone_number);
        opened.row.particulars = particulars.seal(app.sealer(), opened.customer().id)?;
        let command = Command::ChangePhone(CheckId::generate());
        opened.apply(&command, &Actor::ApiKey(request.key_id), app.clock().now()).await?;
    }
    let customer = CustomerRecord::read(&app, opened.transaction(), &opened.row).await?;
    let message = if is_new { "Customer updated" } else { "Customer unchanged" };
    let answer = Answer::ok(&CustomerAnswer { message, customer })?;
    let answered = request.idempotency.commit(opened.into_transaction(), answer).await?;
    if is_new {
        app.system.compliance().nudge();
    }
    Ok(answered)
}

/// Deactivate a customer
///
/// Permanent: the customer cannot be changed any more, and no new payment can name it. The record stays readable, and
/// payments in progress continue. Repeating the request changes nothing and returns the same answer.
#[utoipa::path(
    delete, path = "/api/v1/customers/{customer_id}", tag = "Customers", operation_id = "deactivateCustomer",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The record, with `is_active` false and its `wallet_address`.", body = CustomerAnswer),
    ),
)]
pub async fn deactivate(parts: OneOf<Customers>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(customer_id)) = parts;
    let mut opened = open(&app, caller.psp_id, &customer_id).await?;
    opened.apply(&Command::Deactivate, &Actor::ApiKey(caller.key_id), app.clock().now()).await?;
    let customer = CustomerRecord::read(&app, opened.transaction(), &opened.row).await?;
    let answer = Answer::ok(&CustomerAnswer { message: "Customer deactivated", customer })?;
    opened.commit().await?;
    Ok(answer)
}
