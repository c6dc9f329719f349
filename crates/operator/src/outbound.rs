//! `/ops/sendings`: live payouts and withdrawals, one of them with its actor and operations, and the operator's decision
//! about its address. The page of one of them.

use axum::extract::Path as UrlPath;
use axum::http::Uri;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::Moment;
use payferry_accounts::audit as log_of_audit;
use payferry_actors::{OutboundView, System};
use payferry_domain::outbound::{Command, OutboundId, OutboundTransfer, decide};
use payferry_domain::payment::Decision;
use payferry_domain::{CommandError, Timestamp};
use payferry_entities::{StoreError, sendings};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields, read};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::webhooks::log::{self, LogEntry};
use payferry_runtime::observe::{ActorKind, Incident};
use sea_orm::DbErr;
use serde::Serialize;
use serde_json::json;

use crate::Operator;
use crate::actors::panel::One;
use crate::actors::{LINES_DEFAULT, LINES_MAX, let_run, panel as actor, quarantined};
use crate::attention::{AttentionItem, AttentionKind, Found, OUTBOUND_OVERDUE_AFTER_SECS, Part};
use crate::decisions::decision;
use crate::decisions::page::{finding, verdict};
use crate::decisions::query::{Possible, by_hand, screening_record};
use crate::input::{id_of, limit, only};
use crate::page::form::{Filled, Sort, names};
use crate::page::words::{ago, audit_log, heading, panel, short, status};
use crate::page::{Failure, NavSection, Page, PageRequest, Refused, id_of as page_id_of, path};
use crate::payment::page::{deliveries_panel, on_chain_panel};
use crate::payment::{Operation, incidents_of, operations_of};
use crate::query::{Count, rows};

/// Fields of a decision about the address, in the API and in the form.
const FIELDS: [(&str, Sort); 2] = [("decision", Sort::Text), ("reason", Sort::Text)];

// `live` is in the condition so that the query uses the partial index, which holds few rows.
const IN_REVIEW: &str = "FROM sendings WHERE live AND in_review AND created_at < $1";
const OVERDUE: &str = "FROM sendings WHERE live AND NOT in_review AND created_at < $1";

/// Returns the live payouts and withdrawals in order of id, and the start of the next page if there may be one.
/// `?after=` starts after an id, `?limit=` sets the page size.
pub(super) async fn list(operator: Operator, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let malformed = |_| Fault::new("invalid_id", "is not the id of a payout or withdrawal");
    let after = query.optional("after", |text| text.parse().map_err(malformed));
    let limit = limit(&mut query, LINES_DEFAULT, LINES_MAX);
    query.finish()?;
    let sendings = operator.system.outbound_live(after, limit);
    let next_after = sendings.last().filter(|_| sendings.len() == limit).map(|line| line.id);
    Answer::ok(&record! { sendings: sendings, next_after: next_after })
}

/// Returns a payout or withdrawal, its actor, and the possible decisions.
pub(super) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&find(&operator, id_of("sending_id", &id)?).await?.record())
}

/// Allows or blocks the address: `{"decision": "allow" | "block", "reason"}`.
pub(super) async fn screen(operator: Operator, Path(id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("sending_id", &id)?;
    let asked = body.read(DecisionRequest::read)?;
    Answer::ok(&carry_out(&operator, id, asked).await?.record())
}

pub(super) async fn find(operator: &Operator, id: OutboundId) -> Result<OutboundFacts, ApiError> {
    outbound(&operator.system, id).await?.ok_or(ApiError::NotFound("sending"))
}

/// Decision of an operator about the address, with its reason.
pub(super) struct DecisionRequest {
    decision: Decision,
    reason: String,
}

impl DecisionRequest {
    /// Reads the fields of a decision.
    pub(super) fn read(fields: &Fields<'_>) -> Option<Self> {
        only(fields, &names(&FIELDS));
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
    let entry = NewAuditEntry {
        action: "sending.screened_by_hand".to_owned(),
        psp_id: Some(before.outbound.order.psp_id),
        subject: id.to_string(),
        detail: json!({ "decision": asked.decision, "reason": asked.reason }),
    };
    let command = screening(&before.outbound, asked.decision, now);
    let row = audit::row(entry, &Actor::Operator, now);
    let carried_out = operator.system.command_outbound(id, command, Some(row)).await;
    carried_out.map_err(|error| match error {
        CommandError::Quarantined => quarantined(id),
        other => other.into(),
    })?;
    tracing::info!(sending.id = %id, "operator decided about the address of {id}");
    find(operator, id).await
}

/// All data of one payout or withdrawal.
pub(crate) struct OutboundFacts {
    pub(crate) outbound: OutboundTransfer,
    /// Its actor, if it is running or quarantined. Null once it is finished; the next event starts the actor.
    pub(crate) actor: Option<OutboundView>,
    /// Failures of its actor, newest first.
    pub(crate) incidents: Vec<Incident>,
    /// Possible decisions of the operator about its address.
    pub(crate) may: Vec<Decision>,
    pub(crate) can: Vec<Possible>,
    /// Audit log, oldest first.
    pub(crate) history: Vec<log_of_audit::AuditEntry>,
    /// On-chain operations that carry it.
    pub(crate) operations: Vec<Operation>,
    /// Webhooks about it.
    pub(crate) deliveries: Vec<LogEntry>,
}

impl OutboundFacts {
    /// The payout or withdrawal in a response.
    pub(crate) fn record(self) -> impl Serialize {
        let Self { outbound, actor, incidents, may, can, history, .. } = self;
        let order = outbound.order;
        record! {
            id: order.id,
            // `payout` or `withdrawal`.
            kind: order.id.kind().as_str(),
            psp_id: order.psp_id,
            customer_id: order.customer_id,
            reference: order.reference,
            // `pending`, `sent` or `failed`.
            status: outbound.status.as_str(),
            amount: order.amount.to_string(),
            currency: order.token.as_str(),
            chain: order.asset.chain.as_str(),
            address: checksummed(order.to),
            #[serde(flatten)]
            screening: screening_record(outbound.verdict.as_deref()),
            tx_hash: outbound.tx_hash,
            failure: outbound.failure,
            created_at: Moment(order.created_at),
            finished_at: outbound.finished_at.map(Moment),
            actor: actor,
            incidents: incidents,
            may: may,
            can: can,
            history: history,
        }
    }
}

/// Reads a payout or withdrawal. `None` if the id is unknown.
async fn outbound(system: &System, id: OutboundId) -> Result<Option<OutboundFacts>, StoreError> {
    let (database, now) = (system.database(), system.clock().now());
    let Some(outbound) = payferry_journal::outbound::load(database, id).await? else { return Ok(None) };
    let text = id.to_string();
    Ok(Some(OutboundFacts {
        actor: system.observe_outbound(id).await,
        incidents: incidents_of(system, ActorKind::Sending, &text),
        may: may(&outbound, now),
        can: possible(&outbound, now),
        operations: operations_of(system, &text).await?,
        deliveries: log::deliveries_of(database, outbound.order.psp_id, &text).await?,
        history: log_of_audit::of_subject(database.reader(), text).await?,
        outbound,
    }))
}

/// Command that decides about the address. The findings of the provider are kept.
fn screening(outbound: &OutboundTransfer, decision: Decision, now: Timestamp) -> Command {
    Command::Screen(by_hand(outbound.verdict.as_deref(), decision, now))
}

/// Possible decisions about the address: those that the domain would accept.
fn may(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Decision> {
    let takes = |decision: &Decision| decide(outbound, &screening(outbound, *decision, now), now).is_ok();
    [Decision::Allow, Decision::Block].into_iter().filter(takes).collect()
}

fn possible(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Possible> {
    let path = format!("/ops/sendings/{}/screen", outbound.id());
    if may(outbound, now).is_empty() { Vec::new() } else { vec![Possible { action: "screen", path }] }
}

/// Payouts and withdrawals that need a decision or have waited too long.
pub(crate) async fn stuck(system: &System, kind: AttentionKind, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let (from, before) = match kind {
        AttentionKind::SendingInReview => (IN_REVIEW, i64::MAX),
        _ => (OVERDUE, now.plus_secs(-OUTBOUND_OVERDUE_AFTER_SECS).as_millis()),
    };
    let database = system.database();
    let total = Count::rows(database, from, [before.into()]).await?;
    let sql = part.sql(from, &["created_at", "id"]);
    let rows: Vec<sendings::Model> = rows(database, sql, part.values(before.into())).await?;
    let item = |row: &sendings::Model| {
        let (reason, can) = match payferry_journal::outbound::outbound_of(row) {
            Ok(outbound) => (told(&outbound), possible(&outbound, now)),
            Err(error) => (error.to_string(), Vec::new()),
        };
        let item = AttentionItem::new(&row.id, Some(Timestamp(row.created_at)), now, reason);
        AttentionItem { psp_id: Some(row.psp_id.clone()), can, ..item }
    };
    Ok((total, rows.iter().map(item).collect()))
}

fn told(outbound: &OutboundTransfer) -> String {
    let order = &outbound.order;
    let amount = format!("{} {} on {}", order.amount, order.token, order.asset.chain);
    match outbound.verdict.as_deref() {
        None => format!("{amount}: its address has not been screened"),
        Some(said) if outbound.is_in_review() => format!("{amount}: {} says {}", said.provider, said.flags.join(", ")),
        Some(_) => format!("{amount}: screened but not sent"),
    }
}

/// `/ops/view/sendings/{sending_id}`.
pub(crate) async fn show(
    operator: Operator,
    UrlPath(id): UrlPath<String>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let facts = read(&operator, &id).await?;
    Ok(asked.answer(&page(&operator, &facts, &html! {}, &Filled::default())))
}

/// Releases a quarantined payout or withdrawal.
pub(crate) async fn release_by_form(operator: Operator, UrlPath(id): UrlPath<String>) -> Result<Response, Refused> {
    let id: OutboundId = page_id_of("sending", &id)?;
    // The result is not needed: the page shows the current state.
    let_run(&operator, id).await?;
    Ok(Redirect::to(&format!("{}/{id}", path("sendings"))).into_response())
}

/// Allows or blocks the address of a payout or withdrawal.
pub(crate) async fn screen_by_form(
    operator: Operator,
    UrlPath(id): UrlPath<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let before = read(&operator, &id).await?;
    let id = before.outbound.id();
    let here = format!("{}/{id}", path("sendings"));
    let outcome = async { carry_out(&operator, id, filled.read_confirmed(&FIELDS, DecisionRequest::read)?).await };
    match outcome.await {
        Err(ApiError::TimedOut) => Err(Failure::Unknown { about: id.kind().as_str(), path: here }.into()),
        outcome => match filled.answered(outcome)? {
            Ok(_) => Ok(Redirect::to(&here).into_response()),
            Err(refused) => Ok(page(&operator, &before, &refused.said, &refused.filled).answer_form(refused.status)),
        },
    }
}

async fn read(operator: &Operator, id: &str) -> Result<OutboundFacts, Failure> {
    let found = find(operator, page_id_of("sending", id)?).await;
    found.map_err(|error| Failure::of_read(error, "sending", id))
}

fn page(operator: &Operator, facts: &OutboundFacts, said: &Markup, filled: &Filled) -> Page {
    let (now, real_now) = (operator.system.clock().now(), operator.system.clock().real_now());
    let (outbound, order, id) = (&facts.outbound, &facts.outbound.order, facts.outbound.id());
    let here = format!("{}/{id}", path("sendings"));
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(path("sendings")) { "payouts and withdrawals" } span { (id.kind().as_str()) } }
        div.title {
            h1.mono { (id) }
            (status(outbound.status.as_str()))
            p { strong { (order.amount) " " (order.token) } " on " (order.asset.chain) ", created " (ago(order.created_at, now)) }
        }
        (said)
        (actor::given_up(facts.actor.as_ref().and_then(|actor| actor.quarantined.as_ref()), &here, real_now))
        div.grid.two {
            div.col {
                @if !facts.may.is_empty() { (decision_panel(facts, filled)) }
                (on_chain_panel(&facts.operations, now))
                (deliveries_panel(&facts.deliveries, real_now))
            }
            div.col {
                (money(outbound, now))
                (actor::panel(facts.actor.as_ref().map(One::from).as_ref(), &facts.incidents, real_now))
                @if !facts.history.is_empty() { (audit_log(&facts.history, "sending.", &html! {}, "", now)) }
            }
        }
    };
    let title = format!("{} {id}", heading(id.kind().as_str()));
    // A page with a form is not live.
    Page { is_live: facts.may.is_empty(), ..Page::live(title, NavSection::Overview, body) }
}

fn decision_panel(facts: &OutboundFacts, filled: &Filled) -> Markup {
    let body = html! {
        div.body {
            form.stack #screen method="post" action={ (path("sendings")) "/" (facts.outbound.id()) "/screen" } {
                (filled.choice("decision", "Decision", &[("allow", "allow: send it"), ("block", "block: fail it and return the amount to the balance")]))
                (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                (filled.confirm("I have checked the destination address"))
                div { button { "Decide" } }
            }
        }
    };
    panel("decide", "Destination", "screening needs a decision", &body)
}

fn money(outbound: &OutboundTransfer, now: Timestamp) -> Markup {
    let order = &outbound.order;
    let screening = outbound.verdict.as_deref();
    let body = html! {
        dl.facts {
            dt { "PSP" } dd { a.mono href={ (path("psps")) "/" (order.psp_id) } { (order.psp_id) } }
            @if let Some(customer) = &order.customer_id {
                dt { "Customer" } dd { a.mono href={ (path("customers")) "/" (customer) } { (customer) } }
            }
            @if let Some(reference) = &order.reference { dt { "Reference" } dd { (reference) } }
            dt { "To" } dd.mono { (checksummed(order.to)) }
            dt { "Screening" }
            dd { (verdict(screening)) @if let Some(finding) = finding(screening, now) { " " (finding) } }
            @if let Some(hash) = &outbound.tx_hash { dt { "Transaction" } dd { (short(&hash.to_string())) } }
            @if let Some(failure) = &outbound.failure { dt { "Failed" } dd { span.bad-ink.reason { (failure) } } }
            @if let Some(at) = outbound.finished_at { dt { "Finished" } dd { (ago(at, now)) } }
        }
    };
    panel("money", "Money", "debited from the PSP's balance", &body)
}
