//! `/ops/customers`: state of customers, and manual decisions.

pub mod documents;
pub(crate) mod page;
pub(crate) mod query;

use payferry_domain::customer::{Command, IdentityVerdict, KycStatus};
use payferry_domain::{CustomerId, PspId};
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::lists::{NewestKey, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, JsonBody, Path, Problem, QueryFields, Rule, query, request, rule};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::customers::CustomerChangeError;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::customers::query as customers;
use crate::customers::query::{CustomerRecord, CustomerView, Filter, InspectedCustomer};
use crate::input::{id_of, unknown};
use crate::page::form::Sort;
use crate::query::Count;

/// Characters of an email search.
pub(super) const SEARCH_CHARS_MAX: usize = 254;
/// Fields of the form of a decision.
const FIELDS: [(&str, Sort); 2] = [("outcome", Sort::Text), ("reason", Sort::Text)];

/// `active` or `inactive`.
const IS_ACTIVE: Rule<bool> = Rule {
    read: |value| word(&[("active", true), ("inactive", false)], value),
    schema: || rule::one_of(["active", "inactive"]),
};

/// `approved` or `rejected`.
const IS_APPROVED: Rule<bool> = Rule {
    read: |value| word(&[("approved", true), ("rejected", false)], value),
    schema: || rule::one_of(["approved", "rejected"]),
};

query! {
    /// Filters of the list.
    pub struct CustomerFilters {
        /// Customers of this PSP.
        psp_id: PspId = rule::id(),
        /// Verification status.
        kyc_status: KycStatus = rule::name(),
        /// `active` or `inactive`.
        status: bool = IS_ACTIVE,
        /// Part of the email, case-insensitive.
        search: String = rule::short::<SEARCH_CHARS_MAX>(),
    }
}

request! {
    /// A decision about a customer.
    pub struct CustomerDecision refusing(unknown::<CustomerDecision>) {
        /// `approved` or `rejected`.
        outcome: bool = required(IS_APPROVED),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

/// A page of customers.
#[derive(Serialize, ToSchema)]
pub struct CustomerList {
    /// Number of customers that match.
    total: Count,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    customers: Vec<CustomerRecord>,
}

/// List customers
///
/// Newest first.
#[utoipa::path(
    get, path = "/ops/customers", tag = "Customers", operation_id = "listCustomers",
    params(CustomerFilters, PageParams),
    responses((status = 200, description = "A page of customers.", body = CustomerList), UnreadableQuery),
)]
pub(super) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let filter = filter(&mut query);
    let page = Page::<NewestKey>::read("customers", query)?;
    let (total, mut found) = customers::list(operator.system.database(), &filter, &page).await?;
    let key = |line: &customers::CustomerLine| (line.created_at.as_millis(), line.customer.id.to_string());
    let next_cursor = page.next_cursor(&mut found, key)?;
    Answer::ok(&CustomerList { total, next_cursor, customers: found.into_iter().map(CustomerRecord::of).collect() })
}

/// Filter of a query. Malformed values are recorded in the query.
pub(super) fn filter(query: &mut QueryFields) -> Filter {
    let CustomerFilters { psp_id, kyc_status, status, search } = CustomerFilters::read(query);
    Filter { psp_id, kyc_status, is_active: status, search }
}

/// Read a customer
///
/// Returns the record itself, with its checks, documents and audit entries.
#[utoipa::path(
    get, path = "/ops/customers/{customer_id}", tag = "Customers", operation_id = "getCustomer",
    params(("customer_id" = String, Path, description = "The id of the customer.")),
    responses((status = 200, description = "The customer.", body = InspectedCustomer)),
)]
pub(super) async fn get(operator: Operator, Path(customer_id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&InspectedCustomer::of(view(&operator, id_of("customer_id", &customer_id)?).await?))
}

/// Decide about a customer
///
/// Refused before the terms are accepted.
#[utoipa::path(
    post, path = "/ops/customers/{customer_id}/decide", tag = "Customers", operation_id = "decideCustomer",
    request_body = CustomerDecision,
    params(("customer_id" = String, Path, description = "The id of the customer.")),
    responses(
        (status = 200, description = "The customer after the decision.", body = InspectedCustomer),
        (status = 409, description = "`customer_inactive`, `tos_not_accepted` or `customer_quarantined`.", body = Problem),
    ),
)]
pub(super) async fn decide(
    operator: Operator,
    Path(customer_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = id_of("customer_id", &customer_id)?;
    carry_out(&operator, id, body.parse()?).await?;
    Answer::ok(&InspectedCustomer::of(view(&operator, id).await?))
}

/// Carries out a decision for the operator. Used by the API and the page.
pub(super) async fn carry_out(operator: &Operator, id: CustomerId, decision: CustomerDecision) -> Result<(), ApiError> {
    let system = &operator.system;
    let CustomerDecision { outcome: is_approved, reason } = decision;
    let (outcome, verdict) = if is_approved {
        ("approved", IdentityVerdict::Approved)
    } else {
        ("rejected", IdentityVerdict::Rejected { reasons: vec![reason.clone()] })
    };
    let now = system.clock().now();
    let mut opened = system.open_customer(id, None).await.map_err(|error| match error {
        CustomerChangeError::Quarantined => quarantined(id),
        other => other.into(),
    })?;
    let events = opened.apply(&Command::Decide(verdict), &Actor::Operator, now).await?;
    if events.is_empty() {
        return Ok(());
    }
    let entry = NewAuditEntry {
        action: "customer.decided_by_hand".to_owned(),
        psp_id: Some(opened.customer().psp_id),
        subject: id.to_string(),
        detail: json!({ "outcome": outcome, "reason": reason }),
    };
    audit::append(opened.transaction(), &Actor::Operator, now, vec![entry]).await?;
    opened.commit().await?;
    tracing::info!(customer.id = %id, outcome, "operator decided about customer {id}: {outcome}");
    Ok(())
}

pub(super) async fn view(operator: &Operator, id: CustomerId) -> Result<CustomerView, ApiError> {
    customers::one(&operator.system, id).await?.ok_or(ApiError::NotFound("customer"))
}
