//! `/ops/sendings`: live payouts and withdrawals, one of them with its actor and operations, and the operator's decision
//! about its address.

pub(crate) mod page;
pub(crate) mod query;

use payferry_domain::CommandError;
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::Decision;
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields, read};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use serde_json::json;

use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::decisions::decision;
use crate::input::{LINES_DEFAULT, LINES_MAX, id_of, limit, only};
use crate::outbound::query::OutboundFacts;
use crate::page::form::{Sort, names};

/// Fields of a decision about the address, in the API and in the form.
const FIELDS: [(&str, Sort); 2] = [("decision", Sort::Text), ("reason", Sort::Text)];

/// Returns the live payouts and withdrawals in order of id, and the start of the next page if there may be one.
/// `?after=` starts after an id, `?limit=` sets the page size.
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let malformed = |_| Fault::new("invalid_id", "is not the id of a payout or withdrawal");
    let after = query.optional("after", |text| text.parse().map_err(malformed));
    let limit = limit(&mut query, LINES_DEFAULT, LINES_MAX);
    query.finish()?;
    let sendings = operator.system.outbound_live(after, limit);
    let next_after = sendings.last().filter(|_| sendings.len() == limit).map(|line| line.id);
    Answer::ok(&record! { sendings: sendings, next_after: next_after })
}

/// Returns a payout or withdrawal, its actor, and the possible decisions.
pub(crate) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&find(&operator, id_of("sending_id", &id)?).await?.record())
}

/// Allows or blocks the address: `{"decision": "allow" | "block", "reason"}`.
pub(crate) async fn screen(operator: Operator, Path(id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("sending_id", &id)?;
    let request = body.read(DecisionRequest::read)?;
    Answer::ok(&carry_out(&operator, id, request).await?.record())
}

pub(crate) async fn find(operator: &Operator, id: OutboundId) -> Result<OutboundFacts, ApiError> {
    query::outbound(&operator.system, id).await?.ok_or(ApiError::NotFound("sending"))
}

/// Decision of an operator about the address, with its reason.
pub(crate) struct DecisionRequest {
    decision: Decision,
    reason: String,
}

impl DecisionRequest {
    /// Reads the fields of a decision.
    pub(crate) fn read(fields: &Fields<'_>) -> Option<Self> {
        only(fields, &names(&FIELDS));
        let decision = fields.required("decision", decision);
        let reason = fields.required("reason", read::text);
        Some(Self { decision: decision?, reason: reason? })
    }
}

/// Carries out a decision. Returns the state afterwards.
pub(crate) async fn carry_out(
    operator: &Operator,
    id: OutboundId,
    request: DecisionRequest,
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
