//! `/ops/customers`: state of customers, and manual decisions.

pub mod documents;
pub(crate) mod page;
pub(crate) mod query;

use payferry_domain::CustomerId;
use payferry_domain::customer::{Command, IdentityVerdict, KycStatus};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields, read};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::customers::Opened;
use serde_json::{Value, json};

use crate::Operator;
use crate::customers::query as customers;
use crate::customers::query::{CustomerLine, CustomerView, Filter};
use crate::input::{id_of, only, query_id};
use crate::page::form::{Sort, names};

/// Characters of an email search.
pub(super) const SEARCH_CHARS_MAX: usize = 254;
/// Fields of a decision, in the API and in the form.
const FIELDS: [(&str, Sort); 2] = [("outcome", Sort::Text), ("reason", Sort::Text)];

/// Returns customers, newest first: `?psp_id=`, `?kyc_status=`, `?status=active|inactive`, `?search=`, `?limit=`,
/// `?offset=`.
pub(super) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let page = query.page();
    let filter = filter(&mut query);
    query.finish()?;
    let (total, found) = customers::list(operator.system.database(), &filter, page.limit, page.offset).await?;
    Answer::ok(&record! {
        total: total,
        customers: found.into_iter().map(CustomerLine::record).collect::<Vec<_>>(),
    })
}

/// Filter of a query. Malformed values are recorded in the query.
pub(super) fn filter(query: &mut QueryFields) -> Filter {
    let statuses =
        || Fault::new("unknown_value", "must be one of pending, pending_update, approved, success, rejected");
    Filter {
        psp_id: query.optional("psp_id", query_id),
        kyc_status: query.optional("kyc_status", |text| text.parse::<KycStatus>().map_err(|_| statuses())),
        is_active: query.optional("status", |text| match text {
            "active" => Ok(true),
            "inactive" => Ok(false),
            _ => Err(Fault::new("unknown_value", "must be one of active, inactive")),
        }),
        search: query.optional("search", |text| {
            if text.chars().count() > SEARCH_CHARS_MAX || text.chars().any(char::is_control) {
                return Err(Fault::new("invalid", format!("must be a text of at most {SEARCH_CHARS_MAX} characters")));
            }
            Ok(text.to_owned())
        }),
    }
}

pub(super) async fn get(operator: Operator, Path(customer_id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&view(&operator, id_of("customer_id", &customer_id)?).await?.record())
}

/// Decides manually: `{"outcome": "approved" | "rejected", "reason": "..."}`. Refused before the terms are accepted.
pub(super) async fn decide(
    operator: Operator,
    Path(customer_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = id_of("customer_id", &customer_id)?;
    let decision = body.read(read_decision)?;
    carry_out(&operator, id, decision).await?;
    Answer::ok(&view(&operator, id).await?.record())
}

/// Decision of the operator, with its reason.
pub(super) struct Decision {
    verdict: IdentityVerdict,
    reason: String,
}

/// Reads the fields of a decision.
pub(super) fn read_decision(fields: &Fields<'_>) -> Option<Decision> {
    only(fields, &names(&FIELDS));
    let outcome = fields.required("outcome", |value: &Value| match read::string(value)? {
        "approved" => Ok(true),
        "rejected" => Ok(false),
        _ => Err(Fault::new("unknown_value", "must be one of approved, rejected")),
    });
    let reason = fields.required("reason", read::text)?;
    let verdict =
        if outcome? { IdentityVerdict::Approved } else { IdentityVerdict::Rejected { reasons: vec![reason.clone()] } };
    Some(Decision { verdict, reason })
}

/// Carries out a decision for the operator. Used by the API and the page.
pub(super) async fn carry_out(operator: &Operator, id: CustomerId, decision: Decision) -> Result<(), ApiError> {
    let system = &operator.system;
    let Decision { verdict, reason } = decision;
    let outcome = if verdict == IdentityVerdict::Approved { "approved" } else { "rejected" };
    let now = system.clock().now();
    let mut opened = Opened::find(system.database(), id, None).await?;
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
    customers::one(operator.system.database(), id).await?.ok_or(ApiError::NotFound("customer"))
}
