//! `POST /api/v1/customers`: creates one or many customers in one transaction.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::customers::Model;
use payferry_httpkit::{Answer, ApiError, Away, Customers, Problem, Submission};
use payferry_journal::JournalError;
use payferry_journal::audit::Actor;
use payferry_journal::customers;
use payferry_journal::customers::NewCustomer;
use serde::Serialize;
use utoipa::ToSchema;

use super::CustomerRecord;
use super::creation::{self, Creation, CustomerRequest};
use crate::http::state::{AppState, Shared};

/// Maximum number of customers in a request.
pub const CUSTOMERS_MAX: usize = 100;
/// Maximum size of the body in bytes: the maximum of businesses with all their owners.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One customer, or a list of 1 to 100: all are created, or none.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes the body; `creation::read` reads it")]
#[schema(as = CustomersRequest)]
pub enum CustomersRequest {
    /// One customer.
    #[schema(title = "One customer")]
    One(Box<CustomerRequest>),
    /// Many customers.
    #[schema(title = "Many customers")]
    Many(Vec<CustomerRequest>),
}

/// The created customers.
#[derive(Serialize, ToSchema)]
pub struct CustomersAnswer {
    /// Number of created customers, as text.
    #[schema(example = "1 customer created")]
    message: String,
    /// In the order of the request.
    customers: Vec<CustomerRecord>,
}

/// Create customers
///
/// An individual or a business (`type`), or a list of up to 100 of them: all are created, or none. A new customer is
/// `pending`. Next, it accepts the terms of service, its documents are uploaded, and its identity is verified.
#[utoipa::path(
    post, path = "/api/v1/customers", tag = "Customers", operation_id = "createCustomers",
    request_body = CustomersRequest,
    responses(
        (status = 201, description = "The customers.", body = CustomersAnswer),
        (status = 413, description = "The body is larger than 4 MiB.", body = Problem),
        (status = 422, description = "Every invalid field is named (`[3].email` in a list), and none was created.",
            body = Problem),
    ),
)]
pub async fn create(
    State(app): State<AppState>,
    request: Submission<Customers, BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let now = app.clock().now();
    let today = DateTime::from(now).date_naive();
    let creations = request.read_each(CUSTOMERS_MAX, |fields| creation::read(fields, today))?;
    let mut rows = Vec::with_capacity(creations.len());
    let mut records = Vec::with_capacity(creations.len());
    for creation in creations {
        let (row, record) = made(&app, request.psp_id, creation, now)?;
        rows.push(row);
        records.push(record);
    }
    let answer = Answer::created(&CustomersAnswer { message: message(records.len()), customers: records })?;
    let by = Actor::ApiKey(request.key_id);
    match <[Model; 1]>::try_from(rows) {
        Ok([row]) => {
            let unit = customers::creation(row, &by, now, request.idempotency.row(&answer));
            match app.system.journal().submit(unit).await {
                Ok(_) => Ok(answer.into_response()),
                Err(JournalError::IdempotencyKeyTaken) => request.idempotency.first_answer(&app).await,
                Err(error) => Err(not_written(&error)),
            }
        }
        // Many rows get a transaction of their own, so that they do not delay payments in the journal's write group.
        Err(rows) => {
            let transaction = app.database().begin().await?;
            customers::create(&transaction, &rows, &by, now).await?;
            request.idempotency.commit(&app, transaction, answer).await
        }
    }
}

/// Converts an error of the journal about a new customer into a response.
fn not_written(error: &JournalError) -> ApiError {
    let reason = error.to_string();
    match error {
        JournalError::IdempotencyKeyTaken => ApiError::IdempotencyRunning,
        JournalError::Busy => ApiError::Unavailable(Away::Capacity, reason.into()),
        JournalError::Unavailable(_) => ApiError::Unavailable(Away::Database, reason.into()),
        JournalError::Unknown(_) => ApiError::TimedOut,
        _ => ApiError::internal(reason),
    }
}

fn made(app: &Shared, psp_id: PspId, creation: Creation, now: Timestamp) -> Result<(Model, CustomerRecord), ApiError> {
    let id = CustomerId::generate();
    let Creation { kind, country, currency, email, particulars } = creation;
    let sealed = particulars.seal(app.sealer(), id)?;
    let row = NewCustomer { id, psp_id, kind, email, country, currency, particulars: sealed }.row(now);
    let record = CustomerRecord::of_new(&row, particulars)?;
    Ok((row, record))
}

fn message(count: usize) -> String {
    if count == 1 { "1 customer created".to_owned() } else { format!("{count} customers created") }
}
