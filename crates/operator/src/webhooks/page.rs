//! Webhooks: undelivered events of each PSP, and the state of each endpoint.

use std::collections::HashMap;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::System;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::psps;
use payferry_runtime::observe::{ActorKind, NodeView};
use payferry_webhook::{BreakerState, EndpointView};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter};

use crate::Operator;
use crate::actors::panel as actor;
use crate::page::words::{Tone, ago, badge, bounded, count, explained_head, grouped, panel as section, plain};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};
use crate::webhooks::{self, EndpointLine, WebhookBacklog, Webhooks};

/// Endpoints on the overview, those with problems first.
pub(crate) const OVERVIEW_MAX: usize = 5;

/// `/ops/view/webhooks`: every endpoint.
pub(crate) async fn list(operator: Operator, request: PageRequest) -> Result<Response, Failure> {
    let mut webhooks = webhooks::webhooks(&operator.system).await?;
    name(&operator.system, &mut webhooks.endpoints).await?;
    let now = operator.system.clock().real_now();
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "webhooks" } }
        div.title { h1 { "Webhooks" } p { "Running endpoints and endpoints with undelivered events, those with problems first." } }
        div.col {
            (figures(&webhooks.backlog, now))
            section.panel aria-labelledby="endpoints" {
                header {
                    h2 #endpoints { "Endpoints" }
                    p { @if webhooks.more { "more than " } (grouped(webhooks.endpoints.len())) }
                }
                (table(&webhooks.endpoints, now))
            }
        }
    };
    Ok(request.answer(&Page::live("Webhooks", NavSection::Overview, body)))
}

/// `/ops/view/webhooks/{psp_id}`: one endpoint.
pub(crate) async fn show(
    operator: Operator,
    Path(psp_id): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let id: PspId = id_of("endpoint", &psp_id)?;
    let system = &operator.system;
    let mut line = webhooks::of_psp(system, id).await?;
    name(system, line.as_mut_slice()).await?;
    let tree = system.tree();
    let mut senders = tree.root.children.into_iter().filter(|node| node.kind == ActorKind::WebhookSender);
    let node = senders.find_map(|sender| sender.children.into_iter().find(|node| node.name == psp_id));
    if line.is_none() && node.is_none() {
        return Err(Failure::not_found("endpoint", psp_id));
    }
    let now = system.clock().real_now();
    Ok(request.answer(&Page::live("Endpoint", NavSection::Overview, body(&psp_id, line.as_ref(), node.as_ref(), now))))
}

/// Reads the names of the PSPs that have none yet: those without undelivered events.
pub(crate) async fn name(system: &System, lines: &mut [EndpointLine]) -> Result<(), DbErr> {
    let nameless = lines.iter().filter(|line| line.psp_name.is_empty()).map(|line| line.psp_id.clone());
    let nameless: Vec<String> = nameless.collect();
    if nameless.is_empty() {
        return Ok(());
    }
    let psps = psps::Entity::find().filter(psps::Column::Id.is_in(nameless)).all(system.database().reader()).await?;
    let names: HashMap<String, String> = psps.into_iter().map(|psp| (psp.id, psp.name)).collect();
    for line in lines {
        if let Some(name) = names.get(&line.psp_id) {
            line.psp_name.clone_from(name);
        }
    }
    Ok(())
}

fn body(psp_id: &str, line: Option<&EndpointLine>, node: Option<&NodeView>, now: Timestamp) -> Markup {
    let view = line.and_then(|line| line.actor.as_ref());
    html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(path("webhooks")) { "webhooks" } span { "endpoint" } }
        div.title {
            h1 { "Endpoint" @if let Some(line) = line.filter(|line| !line.psp_name.is_empty()) { " of " (line.psp_name) } }
            @match (view, line) {
                (Some(view), _) => (breaker(view.breaker)),
                (None, Some(line)) => (unseen(line)),
                (None, None) => {},
            }
            p { a.mono href={ (path("psps")) "/" (psp_id) } { (psp_id) } }
        }
        @if let Some(held_by) = line.and_then(|line| line.held_by) {
            p.notice #held-by role="status" { "Nothing is sent: " (plain(held_by)) "." }
        }
        div.col {
            @if let Some(line) = line { (figures(&line.backlog, now)) }
            @if let Some(node) = node { (actor::figures(node, now)) }
            @if let Some(view) = view {
                (section("sending", "Delivery", "", &html! {
                    dl.facts {
                        dt { "In flight" } dd { (count(view.in_flight)) " of " (count(view.limit)) " allowed at once" }
                        dt { "Read ahead" } dd { (count(view.read_ahead)) " not started" }
                        dt { "Attempts" } dd { (count(view.attempts)) ", " (count(view.failures)) " of them failed, since the actor started" }
                        @if let Some(failure) = &view.last_failure { dt { "Last failure" } dd { span.reason { (failure) } } }
                    }
                }))
                (section("lanes", "Endpoints", &grouped(view.endpoints.len()), &lanes(view)))
            }
        }
    }
}

/// Table with a row for each endpoint of the PSP.
fn lanes(view: &EndpointView) -> Markup {
    html! {
        table {
            (explained_head(&[
                ("", "Endpoint", ""), ("", "Breaker", ""), ("n", "In flight", ""), ("n", "Attempts", "Since the actor started"),
                ("n", "Failed", ""), ("", "State", ""),
            ]))
            tbody {
                @for (id, lane) in &view.endpoints {
                    tr id={ "lane-" (id) } .bad[lane.breaker != BreakerState::Closed] {
                        th.mono scope="row" { (id) }
                        td { (breaker(lane.breaker)) }
                        td.n { (count(lane.in_flight)) small { " of " (lane.limit) } }
                        td.n { (count(lane.attempts)) }
                        td.n { (count(lane.failures)) }
                        td { @match (lane.held_by, &lane.last_failure) {
                            (Some(held_by), _) => { "Nothing is sent: " (plain(held_by)) }
                            (None, Some(failure)) => span.reason { (failure) },
                            (None, None) => "–",
                        } }
                    }
                }
            }
        }
    }
}

fn figures(backlog: &WebhookBacklog, now: Timestamp) -> Markup {
    html! {
        dl.figures {
            div { dt { "Queued" } dd { (bounded(backlog.queued)) small { "not attempted" } } }
            div { dt { "Retrying" } dd { (bounded(backlog.retrying)) small { "waiting for a retry" } } }
            div {
                dt { "Oldest" }
                dd.word { @match backlog.waiting_since { Some(since) => (ago(since.0, now)), None => "none waiting" } }
            }
            @if backlog.unaddressed.counted > 0 {
                div {
                    dt { "Without a URL" }
                    dd {
                        (bounded(backlog.unaddressed))
                        small { @if let Some(since) = backlog.unaddressed_since { "oldest " (ago(since.0, now)) } }
                    }
                }
            }
            div {
                dt { "Exhausted" }
                dd {
                    span.bad-ink[backlog.exhausted.counted > 0] { (bounded(backlog.exhausted)) }
                    small { @match backlog.exhausted_since { Some(since) => { "oldest " (ago(since.0, now)) }, None => "none" } }
                }
            }
        }
    }
}

/// Table with a row for each endpoint.
pub(crate) fn panel(webhooks: Option<&Webhooks>, now: Timestamp) -> Markup {
    let shown = webhooks.map(|webhooks| webhooks.endpoints.as_slice());
    html! {
        section.panel aria-labelledby="webhooks" {
            header { h2 #webhooks { "Webhooks" } a.more href=(path("webhooks")) { "all endpoints" } }
            @match shown {
                None => p.none { "Backlog unknown: the database did not answer in time." },
                Some([]) => p.none { "No endpoint is running, and no event is undelivered." },
                Some(shown) => (table(shown, now)),
            }
        }
    }
}

fn table(endpoints: &[EndpointLine], now: Timestamp) -> Markup {
    html! {
        table {
            (explained_head(&[
                ("", "PSP", ""), ("", "Breaker", "Open: deliveries are paused because the receiver fails"),
                ("n", "Waiting", ""), ("n wide", "Oldest", ""), ("n", "Exhausted", ""), ("n", "In flight", ""),
            ]))
            tbody {
                @for line in endpoints {
                    tr id={ "endpoint-" (line.psp_id) } .bad[line.is_tripped()] {
                        th scope="row" {
                            a href={ (path("webhooks")) "/" (line.psp_id) } title=(line.psp_id) {
                                @if line.psp_name.is_empty() { span.mono { "…" (tail(&line.psp_id)) } } @else { (line.psp_name) }
                            }
                        }
                        td { @match &line.actor { Some(view) => (breaker(view.breaker)), None => (unseen(line)) } }
                        td.n {
                            (waiting(&line.backlog))
                            @if line.backlog.unaddressed.counted > 0 { br; small { (bounded(line.backlog.unaddressed)) " without a URL" } }
                        }
                        td.n.wide { @match line.backlog.waiting_since { Some(since) => (ago(since.0, now)), None => "–" } }
                        td.n { span.bad-ink[line.backlog.exhausted.counted > 0] { (bounded(line.backlog.exhausted)) } }
                        td.n { @match &line.actor { Some(view) => { (count(view.in_flight)) small { " of " (view.limit) } }, None => "–" } }
                    }
                }
            }
        }
    }
}

/// Queued and retrying deliveries together.
pub(crate) fn waiting(backlog: &WebhookBacklog) -> Markup {
    bounded(backlog.queued.and(backlog.retrying))
}

fn breaker(state: BreakerState) -> Markup {
    match state {
        BreakerState::Closed => badge("closed", Tone::Good),
        BreakerState::Open => badge("open", Tone::Bad),
        BreakerState::Probing => badge("probing", Tone::Warn),
    }
}

/// Label of an endpoint without data from its actor.
fn unseen(line: &EndpointLine) -> Markup {
    if line.running { badge("busy", Tone::Warn) } else { badge("not running", Tone::Idle) }
}

fn tail(id: &str) -> &str {
    const CHARS: usize = 8;
    id.len().checked_sub(CHARS).and_then(|from| id.get(from..)).unwrap_or(id)
}
