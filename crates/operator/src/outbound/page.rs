//! Page of one payout or withdrawal: its state, its on-chain operations, its actor, and a form if its address needs a
//! decision.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_actors::observe::OutboundLine;
use payferry_domain::Timestamp;
use payferry_domain::outbound::OutboundId;
use payferry_httpkit::error::ApiError;
use payferry_runtime::observe::{ActorKind, NodeView};

use crate::Operator;
use crate::actors::page::From;
use crate::actors::panel::One;
use crate::actors::{let_run, panel as actor};
use crate::decisions::page::{Pairs, confirm, read_form};
use crate::outbound::query::OutboundFacts;
use crate::outbound::{DecisionRequest, carry_out, find};
use crate::page::failure::{Failure, Refused};
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::{self, NavSection, Page};
use crate::page::words::{Tone, ago, badge, clock, count, grouped, outbound_link, plain, short, status};
use crate::payment::page::{deliveries_panel, on_chain_panel};

/// Fields of a decision about the address, named as in the API.
const FIELDS: [(&str, Sort); 2] = [("decision", Sort::Text), ("reason", Sort::Text)];

/// `/ops/view/sendings/{sending_id}`.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    asked: shell::PageRequest,
) -> Result<Response, Failure> {
    let facts = read(&operator, &id).await?;
    Ok(asked.answer(&page(&operator, &facts, &html! {}, &Filled::default())))
}

/// Releases a quarantined payout or withdrawal.
pub(crate) async fn release(State(operator): State<Operator>, Path(id): Path<String>) -> Result<Response, Refused> {
    let id: OutboundId = id.parse().map_err(|_| Failure::not_found("sending", id.clone()))?;
    // The result is not needed: the page shows the current state.
    let_run(&operator, id).await?;
    Ok(Redirect::to(&format!("{}/{id}", path("sendings"))).into_response())
}

/// Allows or blocks the address of a payout or withdrawal.
pub(crate) async fn screen(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let before = read(&operator, &id).await?;
    let filled = Filled::sent(pairs);
    let outcome = match read_form(&filled, &FIELDS, DecisionRequest::read) {
        Ok(asked) => carry_out(&operator, before.id, asked).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to(&format!("{}/{}", path("sendings"), before.id)).into_response()),
        Err(ApiError::TimedOut) => {
            Err(Failure::unknown(before.kind, format!("{}/{}", path("sendings"), before.id)).into())
        }
        Err(ApiError::Conflict(_, detail, _)) => {
            let said = html! { div.notice.bad role="alert" { "Nothing was changed: " (detail) } };
            Ok(answer(StatusCode::CONFLICT, page(&operator, &before, &said, &filled)))
        }
        Err(error) => {
            let filled = filled.refused(error)?;
            let page = page(&operator, &before, &filled.summary(), &filled);
            Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, page))
        }
    }
}

/// Page as the response to its form. It is not live, even if it has no form any more.
fn answer(status: StatusCode, page: Page) -> Response {
    Page { status, is_live: false, ..page }.into_response()
}

async fn read(operator: &Operator, id: &str) -> Result<OutboundFacts, Failure> {
    let missing = || Failure::not_found("sending", id);
    let parsed: OutboundId = id.parse().map_err(|_| missing())?;
    match find(operator, parsed).await {
        Ok(facts) => Ok(facts),
        Err(ApiError::NotFound(_)) => Err(missing()),
        Err(error) => Err(error.into()),
    }
}

fn page(operator: &Operator, facts: &OutboundFacts, said: &Markup, filled: &Filled) -> Page {
    let (now, real_now) = (operator.system.clock().now(), operator.system.clock().real_now());
    let here = format!("{}/{}", path("sendings"), facts.id);
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(path("sendings")) { "payouts and withdrawals" } span { (facts.kind) } }
        div.title {
            h1.mono { (facts.id) }
            (status(facts.status))
            p { strong { (facts.amount) " " (facts.currency) } " on " (facts.chain) ", created " (ago(facts.created_at.0, now)) }
        }
        (said)
        (actor::given_up(facts.actor.as_ref().and_then(|actor| actor.quarantined.as_ref()), &here, real_now))
        div.grid.two {
            div.col {
                @if !facts.may.is_empty() { (decision(facts, filled)) }
                (on_chain_panel(&facts.operations, now))
                (deliveries_panel(&facts.deliveries, real_now))
            }
            div.col {
                (money(facts, now))
                (actor::panel(facts.actor.as_ref().map(One::from).as_ref(), &facts.incidents, real_now))
                (history(facts, now))
            }
        }
    };
    let title = format!("{} {}", if facts.kind == "payout" { "Payout" } else { "Withdrawal" }, facts.id);
    // A page with a form is not live.
    Page { is_live: facts.may.is_empty(), ..Page::live(title, NavSection::Overview, body) }
}

fn decision(facts: &OutboundFacts, filled: &Filled) -> Markup {
    html! {
        section.panel aria-labelledby="decide" {
            header { h2 #decide { "Destination" } p { "screening needs a decision" } }
            div.body {
                form.stack #screen method="post" action={ (path("sendings")) "/" (facts.id) "/screen" } {
                    (filled.choice("decision", "Decision", &[("allow", "allow: send it"), ("block", "block: fail it and return the amount to the balance")]))
                    (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                    (confirm(filled, "I have checked the destination address"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

fn money(facts: &OutboundFacts, now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="money" {
            header { h2 #money { "Money" } p { "debited from the PSP's balance" } }
            dl.facts {
                dt { "PSP" } dd { a.mono href={ (path("psps")) "/" (facts.psp_id) } { (facts.psp_id) } }
                @if let Some(customer) = &facts.customer_id {
                    dt { "Customer" } dd { a.mono href={ (path("customers")) "/" (customer) } { (customer) } }
                }
                @if let Some(reference) = &facts.reference { dt { "Reference" } dd { (reference) } }
                dt { "To" } dd.mono { (facts.address) }
                dt { "Screening" }
                dd {
                    @match facts.verdict { Some(verdict) => (status(verdict.as_str())), None => "not screened yet" }
                    @if let Some(provider) = &facts.provider { " " (provider) @if !facts.flags.is_empty() { ": " (facts.flags.join(", ")) } }
                    @if let Some(at) = facts.checked_at { " " small { (ago(at.0, now)) } }
                }
                @if let Some(hash) = &facts.tx_hash { dt { "Transaction" } dd { (short(hash)) } }
                @if let Some(failure) = &facts.failure { dt { "Failed" } dd { span.bad-ink.reason { (failure) } } }
                @if let Some(at) = facts.finished_at { dt { "Finished" } dd { (ago(at.0, now)) } }
            }
        }
    }
}

fn history(facts: &OutboundFacts, now: Timestamp) -> Markup {
    html! {
        @if !facts.history.is_empty() {
            section.panel #history aria-labelledby="who" {
                header { h2 #who { "Audit log" } }
                ol.log {
                    @for entry in &facts.history {
                        li id={ "entry-" (entry.number) } {
                            span.when { (clock(entry.at.0, now)) }
                            span.what { (plain(entry.action.strip_prefix("sending.").unwrap_or(&entry.action))) }
                            span.why { (plain(&entry.actor_kind)) @if !entry.actor.is_empty() { " " span.mono { (entry.actor) } } }
                            span.done { @if let Some(reason) = entry.detail["reason"].as_str() { (reason) } }
                        }
                    }
                }
            }
        }
    }
}

/// Payouts and withdrawals on one page.
const OUTBOUND_MAX: usize = 50;

/// `/ops/view/sendings`.
pub(crate) async fn show_queue(
    State(operator): State<Operator>,
    Query(from): Query<From>,
    asked: shell::PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let supervisor = system.tree().root.children.into_iter().find(|node| node.kind == ActorKind::SendingDesk);
    let node = supervisor.ok_or_else(|| Failure::not_found("desk", "sendings"))?;
    let after = from.after::<OutboundId>("payout or withdrawal")?;
    // Reads one more than it shows, to know if a next page exists.
    let mut lines = system.outbound_live(after, OUTBOUND_MAX + 1);
    let next = (lines.len() > OUTBOUND_MAX).then(|| lines[OUTBOUND_MAX - 1].id);
    lines.truncate(OUTBOUND_MAX);
    let now = system.clock().real_now();
    let body = queue_body(&node, &lines, after, next, now);
    Ok(asked.answer(&Page::live("Payouts and withdrawals", NavSection::Overview, body)))
}

fn queue_body(
    node: &NodeView,
    lines: &[OutboundLine],
    after: Option<OutboundId>,
    next: Option<OutboundId>,
    now: Timestamp,
) -> Markup {
    let here = path("sendings");
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "payouts and withdrawals" } }
        div.title {
            h1 { "Payouts and withdrawals" }
            (crate::actors::tree::state(node.state))
        }
        (actor::figures(node, now))
        section.panel aria-labelledby="sendings" {
            header {
                h2 #sendings { "Live payouts and withdrawals" }
                p { (grouped(node.children_live.try_into().unwrap_or(i128::MAX))) " actors, by id" @if let Some(after) = after { ", after " code { (after) } } }
            }
            @if lines.is_empty() {
                p.none { @if after.is_some() { "No more payouts or withdrawals." } @else { "None. Sent and failed payouts and withdrawals have no actor." } }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Payout or withdrawal" }
                            th scope="col" { "Status" }
                            th.wide scope="col" { "Chain" }
                            th.n.wide scope="col" { "Version" }
                            th.n.wide scope="col" { "Mailbox" }
                            th.n.wide scope="col" { "Running since" }
                        }
                    }
                    tbody {
                        @for line in lines {
                            tr id=(line.id) {
                                th scope="row" { (outbound_link(&line.id.to_string())) }
                                td { (status(line.status.as_str())) @if line.in_review { " " (badge("in review", Tone::Warn)) } }
                                td.wide { (line.chain) }
                                td.n.wide { (line.version) }
                                td.n.wide { (count(line.mailbox)) }
                                td.n.wide { (ago(line.since, now)) }
                            }
                        }
                    }
                }
            }
            @if after.is_some() || next.is_some() {
                nav.pages aria-label="Pages of payouts and withdrawals" {
                    @if after.is_some() { a rel="first" href=(here) { "First page" } }
                    @if let Some(next) = next { a rel="next" href={ (here) "?after=" (next) } { "Next " (OUTBOUND_MAX) } }
                }
            }
        }
    }
}
