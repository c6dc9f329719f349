//! `/ops/sendings`: live payouts and withdrawals, one of them with its actor and operations, and the operator's decision
//! about its address.

pub(crate) mod page;
pub(crate) mod query;

use payferry_actors::observe::OutboundLine;
use payferry_domain::CommandError;
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::Decision;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, Page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{
    Answer, ApiError, Fault, JsonBody, Path, Problem, QueryFields, Rule, query, read, request, rule,
};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::input::{DECISION, LINES_DEFAULT, LINES_MAX, id_of, unknown};
use crate::outbound::query::{OutboundFacts, OutboundRecord};
use crate::page::form::Sort;

/// Fields of the form of a decision about the address.
const FIELDS: [(&str, Sort); 2] = [("decision", Sort::Text), ("reason", Sort::Text)];

/// The id of a payout or withdrawal.
const OUTBOUND_ID: Rule<OutboundId> = Rule {
    read: |value| {
        let malformed = |_| Fault::new("invalid_id", "is not the id of a payout or withdrawal");
        read::string(value)?.parse().map_err(malformed)
    },
    schema: || rule::string().pattern(Some("^(po|wd)_[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
};

query! {
    /// Page of the list.
    pub struct OutboundQuery {
        /// Only ids after this one: the `next_after` of the previous page.
        after: OutboundId = OUTBOUND_ID,
        /// Maximum number of items; 100 if absent.
        limit: u64 = number::<1, LINES_MAX>(),
        /// The `next_cursor` of the previous page. Not together with `after`.
        cursor: String = CURSOR,
    }
}

/// A page of live payouts and withdrawals.
#[derive(Serialize, ToSchema)]
pub struct OutboundList {
    /// In the order of their ids.
    sendings: Vec<OutboundLine>,
    /// Pass it as `after` to get the next page; null on the last page.
    next_after: Option<String>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
}

/// List the live payouts and withdrawals
///
/// Sent and failed ones have no actor and are not listed.
#[utoipa::path(
    get, path = "/ops/sendings", tag = "Money", operation_id = "listSendings", params(OutboundQuery),
    responses((status = 200, description = "A page.", body = OutboundList), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let OutboundQuery { after, limit, .. } = OutboundQuery::read(&mut query);
    let page = Page::of_limit("sendings", query, limit.unwrap_or(LINES_DEFAULT), after.is_some())?;
    let mut sendings = operator.system.outbound_live(after.or(page.after), page.lines_max());
    let next = page.cut(&mut sendings).then(|| sendings.last()).flatten().map(|line| line.id);
    let next_cursor = next.map(|id| page.cursor(&id)).transpose()?;
    Answer::ok(&OutboundList { sendings, next_after: next.map(|id| id.to_string()), next_cursor })
}

/// Read a payout or withdrawal
///
/// Returns the record itself, with its actor and the possible decisions.
#[utoipa::path(
    get, path = "/ops/sendings/{sending_id}", tag = "Money", operation_id = "getSending",
    params(("sending_id" = String, Path, description = "The id of the payout or withdrawal.")),
    responses((status = 200, description = "The payout or withdrawal.", body = OutboundRecord)),
)]
pub(crate) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&OutboundRecord::of(find(&operator, id_of("sending_id", &id)?).await?)?)
}

/// Decide about the address of a payout or withdrawal
#[utoipa::path(
    post, path = "/ops/sendings/{sending_id}/screen", tag = "Money", operation_id = "screenSending",
    request_body = OutboundDecision,
    params(("sending_id" = String, Path, description = "The id of the payout or withdrawal.")),
    responses(
        (status = 200, description = "The payout or withdrawal after the decision.", body = OutboundRecord),
        (status = 409, description = "`not_in_review` or `sending_quarantined`.", body = Problem),
    ),
)]
pub(crate) async fn screen(operator: Operator, Path(id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("sending_id", &id)?;
    Answer::ok(&OutboundRecord::of(carry_out(&operator, id, body.parse()?).await?)?)
}

pub(crate) async fn find(operator: &Operator, id: OutboundId) -> Result<OutboundFacts, ApiError> {
    query::outbound(&operator.system, id).await?.ok_or(ApiError::NotFound("sending"))
}

request! {
    /// A decision about the address of a payout or withdrawal.
    pub struct OutboundDecision refusing(unknown::<OutboundDecision>) {
        /// `allow`: send it. `block`: fail it and return the amount to the balance.
        decision: Decision = required(DECISION),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

/// Carries out a decision. Returns the state afterwards.
pub(crate) async fn carry_out(
    operator: &Operator,
    id: OutboundId,
    request: OutboundDecision,
) -> Result<OutboundFacts, ApiError> {
    let now = operator.system.clock().now();
    let before = find(operator, id).await?;
    let entry = NewAuditEntry {
        action: "sending.screened_by_hand".to_owned(),
        psp_id: Some(before.outbound.order.psp_id),
        subject: id.to_string(),
        detail: json!({ "decision": request.decision, "reason": request.reason }),
    };
    let command = query::screening(&before.outbound, request.decision, now);
    let row = audit::row(entry, &Actor::Operator, now);
    let carried_out = operator.system.command_outbound(id, command, Some(row)).await;
    carried_out.map_err(|error| match error {
        CommandError::Quarantined => quarantined(id),
        other => other.into(),
    })?;
    tracing::info!(sending.id = %id, "operator decided about the address of {id}");
    find(operator, id).await
}
