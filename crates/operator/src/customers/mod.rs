//! `/ops/customers`: where customers stand, and deciding about them by hand.

pub mod documents;
pub(crate) mod page;
pub(crate) mod query;

use axum::extract::State;
use axum::http::Uri;
use payferry_actors::customers::Opened;
use payferry_actors::customers::audit::{self, Actor, Entry};
use payferry_domain::CustomerId;
use payferry_domain::customer::{Command, KycStatus, Verdict};
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, Fields, JsonBody, Path, QueryFields, read};
use serde_json::{Value, json};

use crate::Operator;
use crate::customers::query as customers;
use crate::customers::query::{CustomerView, Filter, ReadError};
use crate::input::{id_of, only};

/// Characters of an email that is looked for.
pub(super) const SEARCH_CHARS_MAX: usize = 254;
/// The fields of a decision.
const FIELDS: [&str; 2] = ["outcome", "reason"];

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotFound => Self::NotFound("customer"),
            ReadError::Database(error) => error.into(),
            ReadError::Unreadable(error) => error.into(),
        }
    }
}

/// Customers, the newest first: `?psp_id=`, `?kyc_status=`, `?status=active|inactive`, `?search=`, `?limit=`, `?offset=`.
pub(super) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    let filter = filter(&mut query);
    query.finish()?;
    Answer::ok(&customers::list(operator.system.database(), &filter, page.limit, page.offset).await?)
}

/// The filter of a query; what cannot be read is remembered there.
pub(super) fn filter(query: &mut QueryFields) -> Filter {
    let statuses =
        || Fault::new("unknown_value", "must be one of pending, pending_update, approved, success, rejected");
    Filter {
        psp_id: query
            .optional("psp_id", |text| text.parse().map_err(|_| Fault::new("invalid_id", "is not an id of this kind"))),
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

/// One customer: where it stands, its checks and documents, and who did what.
pub(super) async fn get(State(operator): State<Operator>, Path(customer_id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&view(&operator, id_of("customer_id", &customer_id)?).await?)
}

/// Decides by hand: `{"outcome": "approved" | "rejected", "reason": "..."}`. Never before the terms are accepted.
pub(super) async fn decide(
    State(operator): State<Operator>,
    Path(customer_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = id_of("customer_id", &customer_id)?;
    let decision = body.read(read_decision)?;
    carry_out(&operator, id, decision).await?;
    Answer::ok(&view(&operator, id).await?)
}

/// What the operator has decided, and why.
pub(super) struct Decision {
    verdict: Verdict,
    reason: String,
}

/// The fields of a decision.
pub(super) fn read_decision(fields: &Fields<'_>) -> Option<Decision> {
    only(fields, &FIELDS);
    let outcome = fields.required("outcome", |value: &Value| match read::string(value)? {
        "approved" => Ok(true),
        "rejected" => Ok(false),
        _ => Err(Fault::new("unknown_value", "must be one of approved, rejected")),
    });
    let reason = fields.required("reason", read::text)?;
    let verdict = if outcome? { Verdict::Approved } else { Verdict::Rejected { reasons: vec![reason.clone()] } };
    Some(Decision { verdict, reason })
}

/// Carries a decision out, whoever asks for the operator.
pub(super) async fn carry_out(operator: &Operator, id: CustomerId, decision: Decision) -> Result<(), ApiError> {
    let system = &operator.system;
    let Decision { verdict, reason } = decision;
    let outcome = if verdict == Verdict::Approved { "approved" } else { "rejected" };
    let now = system.clock().now();
    let mut opened = Opened::find(system.database(), id, None).await?;
    let events = opened.apply(&Command::Decide(verdict), &Actor::Operator, now).await?;
    if events.is_empty() {
        return Ok(());
    }
    let entry = Entry {
        action: "customer.decided_by_hand".to_owned(),
        psp_id: Some(opened.customer().psp_id),
        subject: id.to_string(),
        detail: json!({ "outcome": outcome, "reason": reason }),
    };
    audit::append(opened.transaction(), &Actor::Operator, now, vec![entry]).await?;
    opened.commit().await?;
    tracing::info!(customer.id = %id, outcome, "the operator decided about customer {id}: {outcome}");
    Ok(())
}

/// One customer.
pub(super) async fn view(operator: &Operator, id: CustomerId) -> Result<CustomerView, ApiError> {
    Ok(customers::one(operator.system.database(), id).await?)
}
