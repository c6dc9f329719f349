//! `GET /api/v1/customers` and `GET /api/v1/customers/{customer_id}`.

use axum::extract::State;
use payferry_domain::customer::KycStatus;
use payferry_entities::customers::{Column, Entity};
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_counted_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Path, Read, Rule, query, rule};
use payferry_journal::JournalWrite;
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use sea_orm::DerivePartialModel;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::create::not_written;
use super::search::Wanted;
use super::{CustomerRecord, own};
use crate::http::state::{ListOf, OneOf};

/// A customer in lists: the columns without the encrypted ones.
#[derive(Serialize, ToSchema, DerivePartialModel)]
#[sea_orm(entity = "Entity")]
#[schema(description = "A customer in lists.")]
pub struct CustomerSummary {
    /// Same as in the record.
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub id: String,
    /// ISO 8601.
    pub created_at: DateTime,
    /// ISO 8601.
    pub updated_at: DateTime,
    /// ISO 3166-1 alpha-3.
    #[schema(example = "USA")]
    pub country: String,
    /// Email address.
    #[schema(example = "ada@example.com")]
    pub email: String,
    /// individual or business.
    #[serde(rename = "type")]
    #[schema(example = "individual")]
    pub kind: String,
    /// False once the customer was deactivated.
    pub is_active: bool,
    /// Same as in the record.
    #[schema(example = "pending")]
    pub kyc_status: String,
    /// The PSP's account.
    pub psp_id: String,
}

/// `active` or `inactive`.
const IS_ACTIVE: Rule<bool> = Rule {
    read: |value| word(&[("active", true), ("inactive", false)], value),
    schema: || rule::one_of(["active", "inactive"]),
};

query! {
    /// Filters of the list.
    pub struct CustomerFilters {
        /// Text that the email address contains, ignoring case.
        search: String = rule::text(),
        /// Inactive customers were deactivated.
        status: bool = IS_ACTIVE,
        /// The verification status.
        kyc_status: KycStatus = rule::name(),
    }
}

/// A page of customers.
#[derive(Serialize, ToSchema)]
pub struct CustomerList {
    message: &'static str,
    /// Number of customers in the whole list.
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    customers: Vec<CustomerSummary>,
}

/// List customers
///
/// Newest first.
#[utoipa::path(
    get, path = "/api/v1/customers", tag = "Customers", operation_id = "listCustomers",
    params(CustomerFilters, PageParams),
    responses((status = 200, description = "A page of customers.", body = CustomerList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let filters = CustomerFilters::read(&mut query);
    let page = Page::read("customers", query)?;
    let (database, order) = (app.database(), [Column::CreatedAt, Column::Id]);
    let Wanted { rows, total } = Wanted::find(database, caller.psp_id, filters).await?;
    let key = |customer: &CustomerSummary| (customer.created_at.0, customer.id.clone());
    let Found { total, rows: customers, next_cursor } =
        read_counted_page(database, rows, order, &page, key, total).await?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&CustomerList { message: "Customers", total, limit, offset, next_cursor, customers })
}

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
/// The complete record is in `customer`, with payment details and the paths of documents. Government and tax ids, dates
/// of birth, phone numbers and account numbers need the scope `customers`. Each read is written to the audit log.
#[utoipa::path(
    get, path = "/api/v1/customers/{customer_id}", tag = "Customers", operation_id = "getCustomer",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "The customer.", body = CustomerAnswer)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(customer_id)) = parts;
    let row = own(&app, caller.psp_id, &customer_id).await?;
    let customer = CustomerRecord::read(&app, app.database().reader(), &row).await?;
    let customer = if caller.sees_identities { customer } else { customer.without_identity() };
    let entry = NewAuditEntry {
        action: "customer.read".to_owned(),
        psp_id: Some(caller.psp_id),
        subject: row.id,
        detail: json!({ "identity_data": caller.sees_identities }),
    };
    let entry = audit::row(entry, &Actor::ApiKey(caller.key_id), app.clock().now());
    // The journal commits entries in groups, so that a read needs no transaction of its own.
    app.system.journal().submit(JournalWrite::Audit(Box::new(entry))).await.map_err(|error| not_written(&error))?;
    Answer::ok(&CustomerAnswer { message: "Customer", customer })
}
