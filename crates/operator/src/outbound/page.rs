//! Page of the live payouts and withdrawals, and of one of them.

use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_actors::observe::OutboundLine;
use payferry_domain::Timestamp;
use payferry_domain::outbound::{OutboundId, OutboundTransfer};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{ApiError, RequestBody as _};
use payferry_runtime::observe::ActorKind;

use crate::Operator;
use crate::actors::live::{LINES_READ_MAX, LiveLine, LivePage, PageStart};
use crate::actors::panel::{self as actor, One};
use crate::actors::quarantine;
use crate::decisions::page::{finding, verdict};
use crate::outbound::query::{OutboundFacts, outbound};
use crate::outbound::{FIELDS, OutboundDecision, carry_out};
use crate::page::form::Filled;
use crate::page::words::{
    Tone, ago, audit_log, badge, heading, on_chain, outbound_link, panel, status, whole_on_chain,
};
use crate::page::{Failure, NavSection, Page, PageRequest, Refused, id_of, path};
use crate::payment::page::{deliveries_panel, on_chain_panel};

/// `/ops/view/sendings`: the live payouts and withdrawals.
pub(crate) async fn list(
    operator: Operator,
    Query(from): Query<PageStart>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let tree = system.tree();
    let found = tree.root.children.iter().find(|node| node.kind == ActorKind::OutboundSupervisor);
    let supervisor = found.ok_or_else(|| Failure::not_found("supervisor", "sendings"))?;
    let after: Option<OutboundId> = from.after("payout or withdrawal")?;
    let line = |OutboundLine { id, status: in_status, in_review, chain, version, mailbox, since }| {
        let id = OutboundId::to_string(&id);
        let status = html! { (status(in_status.as_str())) @if in_review { " " (badge("in review", Tone::Warn)) } };
        LiveLine { link: outbound_link(&id), id, status, chain, version, mailbox, since }
    };
    let page = LivePage {
        title: "Payouts and withdrawals".to_owned(),
        crumb: "payouts and withdrawals",
        here: path("sendings"),
        supervisor,
        list: ("sendings", "payouts and withdrawals"),
        column: "Payout or withdrawal",
        none: if after.is_some() {
            "No more payouts or withdrawals."
        } else {
            "None. Sent and failed payouts and withdrawals have no actor."
        },
        after: after.map(|after| after.to_string()),
        lines: system.outbound_live(after, LINES_READ_MAX).into_iter().map(line).collect(),
    };
    Ok(request.answer(&page.render(system.clock().real_now())))
}

/// `/ops/view/sendings/{sending_id}`.
pub(crate) async fn show(
    operator: Operator,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let facts = read(&operator, &id).await?;
    Ok(request.answer(&page(&operator, &facts, &html! {}, &Filled::default())))
}

/// Releases a quarantined payout or withdrawal.
pub(crate) async fn release(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let id: OutboundId = id_of("sending", &id)?;
    quarantine::release_by_form(&operator, &filled, id).await
}

/// Allows or blocks the address of a payout or withdrawal.
pub(crate) async fn screen(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let before = read(&operator, &id).await?;
    let id = before.outbound.id();
    let here = format!("{}/{id}", path("sendings"));
    let outcome = async { carry_out(&operator, id, filled.read(&FIELDS, OutboundDecision::read)?).await };
    match outcome.await {
        Err(ApiError::TimedOut) => Err(Failure::Unknown { about: id.kind().as_str(), path: here }.into()),
        outcome => match filled.answered(outcome)? {
            Ok(_) => Ok(Redirect::to(&here).into_response()),
            Err(refused) => Ok(page(&operator, &before, &refused.said, &refused.filled).answer_form(refused.status)),
        },
    }
}

async fn read(operator: &Operator, id: &str) -> Result<OutboundFacts, Failure> {
    outbound(&operator.system, id_of("sending", id)?).await?.ok_or_else(|| Failure::not_found("sending", id))
}

fn page(operator: &Operator, facts: &OutboundFacts, said: &Markup, filled: &Filled) -> Page {
    let (now, real_now) = (operator.system.clock().now(), operator.system.clock().real_now());
    let (outbound, order, id) = (&facts.outbound, &facts.outbound.order, facts.outbound.id());
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(path("sendings")) { "payouts and withdrawals" } span { (id.kind().as_str()) } }
        div.title {
            h1.mono { (id) }
            (status(outbound.status.as_str()))
            p { strong { (order.amount) " " (order.token) } " on " (order.asset.chain) ", created " (ago(order.created_at, now)) }
        }
        (said)
        (actor::given_up(id, facts.actor.as_ref().and_then(|actor| actor.quarantined.as_ref()), real_now))
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
                (filled.sign("basis of the decision", "I have checked the destination address"))
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
            dt { "To" } dd { (whole_on_chain(order.asset.chain, &checksummed(order.to))) }
            dt { "Screening" }
            dd { (verdict(screening)) @if let Some(finding) = finding(screening, now) { " " (finding) } }
            @if let Some(hash) = &outbound.tx_hash { dt { "Transaction" } dd { (on_chain(order.asset.chain, &hash.to_string())) } }
            @if let Some(failure) = &outbound.failure { dt { "Failed" } dd { span.bad-ink.reason { (failure) } } }
            @if let Some(at) = outbound.finished_at { dt { "Finished" } dd { (ago(at, now)) } }
        }
    };
    panel("money", "Money", "debited from the PSP's balance", &body)
}
