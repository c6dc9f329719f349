//! `/ops/sendings`: live payouts and withdrawals, one of them, and the operator's decision about its address.

pub(crate) mod page;
pub(crate) mod query;

use axum::extract::State;
use axum::http::Uri;
use payferry_actors::OutboundCommandError;
use payferry_actors::observe::OutboundLine;
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::Decision;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, Fields, JsonBody, Path, QueryFields, read};
use payferry_journal::audit::{self, Actor, Entry};
use serde::Serialize;
use serde_json::json;

use crate::Operator;
use crate::actors::{LINES_DEFAULT, limit, quarantined};
use crate::decisions::decision;
use crate::input::{id_of, only};
use crate::outbound::query as sendings;
use crate::outbound::query::OutboundFacts;

#[derive(Serialize)]
struct OutboundListPage {
    sendings: Vec<OutboundLine>,
    /// Start of the next page, if there may be one.
    next_after: Option<OutboundId>,
}

/// Returns the live payouts and withdrawals in order of id. `?after=` starts after an id, `?limit=` sets the page size.
pub(super) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let malformed = |_| Fault::new("invalid_id", "is not the id of a payout or withdrawal");
    let after = query.optional("after", |text| text.parse().map_err(malformed));
    let limit = query.optional("limit", limit);
    query.finish()?;
    let limit = limit.unwrap_or(LINES_DEFAULT);
    let sendings = operator.system.outbound_live(after, limit);
    let next_after = sendings.last().filter(|_| sendings.len() == limit).map(|line| line.id);
    Answer::ok(&OutboundListPage { sendings, next_after })
}

/// Returns a payout or withdrawal, its actor, and the possible decisions.
pub(super) async fn get(State(operator): State<Operator>, Path(id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&find(&operator, id_of("sending_id", &id)?).await?)
}

/// Allows or blocks the address: `{"decision": "allow" | "block", "reason"}`.
pub(super) async fn screen(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = id_of("sending_id", &id)?;
    let asked = body.read(DecisionRequest::read)?;
    Answer::ok(&carry_out(&operator, id, asked).await?)
}

/// Reads one of them.
pub(super) async fn find(operator: &Operator, id: OutboundId) -> Result<OutboundFacts, ApiError> {
    sendings::outbound(&operator.system, id).await?.ok_or(ApiError::NotFound("sending"))
}

/// Decision of an operator about the address, with its reason.
pub(super) struct DecisionRequest {
    decision: Decision,
    reason: String,
}

impl DecisionRequest {
    /// Reads the fields of a decision.
    pub(super) fn read(fields: &Fields<'_>) -> Option<Self> {
        only(fields, &["decision", "reason"]);
        let decision = fields.required("decision", decision);
        let reason = fields.required("reason", read::text);
        Some(Self { decision: decision?, reason: reason? })
    }
}

/// Carries out a decision. Returns the state afterwards.
pub(super) async fn carry_out(
    operator: &Operator,
    id: OutboundId,
    asked: DecisionRequest,
) -> Result<OutboundFacts, ApiError> {
    let now = operator.system.clock().now();
    let before = find(operator, id).await?;
    let entry = Entry {
        action: "sending.screened_by_hand".to_owned(),
        psp_id: Some(before.outbound.order.psp_id),
        subject: id.to_string(),
        detail: json!({ "decision": asked.decision, "reason": asked.reason }),
    };
    let command = sendings::screen(&before.outbound, asked.decision, now);
    let row = audit::row(entry, &Actor::Operator, now);
    let carried_out = operator.system.command_outbound(id, command, Some(row)).await;
    carried_out.map_err(|error| match error {
        OutboundCommandError::Quarantined => quarantined(id),
        other => other.into(),
    })?;
    tracing::info!(sending.id = %id, "operator decided about the address of {id}");
    find(operator, id).await
}
