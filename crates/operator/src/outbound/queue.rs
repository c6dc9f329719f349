//! Page of the payouts and withdrawals: their supervisor, and one page of the live ones.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::SendingLine;
use payferry_domain::Timestamp;
use payferry_domain::sending::SendingId;
use payferry_runtime::observe::{ActorKind, NodeView};

use crate::Operator;
use crate::actors::panel as actor;
use crate::actors::shard::From;
use crate::page::failure::Failure;
use crate::page::path;
use crate::page::shell::{Asked, Page, Place};
use crate::page::words::{Tone, ago, badge, count, grouped, sending_link, status};

/// Payouts and withdrawals on one page.
const SENDINGS_MAX: usize = 50;

/// `/ops/view/sendings`.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Query(from): Query<From>,
    asked: Asked,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let desk = system.tree().root.children.into_iter().find(|node| node.kind == ActorKind::SendingDesk);
    let node = desk.ok_or_else(|| Failure::not_found("desk", "sendings"))?;
    let after = from.after::<SendingId>("payout or withdrawal")?;
    // Reads one more than it shows, to know if a next page exists.
    let mut lines = system.sendings_live(after, SENDINGS_MAX + 1);
    let next = (lines.len() > SENDINGS_MAX).then(|| lines[SENDINGS_MAX - 1].id);
    lines.truncate(SENDINGS_MAX);
    let now = system.clock().real_now();
    let body = body(&node, &lines, after, next, now);
    Ok(asked.answer(&Page::live("Payouts and withdrawals", Place::Overview, body)))
}

fn body(
    node: &NodeView,
    lines: &[SendingLine],
    after: Option<SendingId>,
    next: Option<SendingId>,
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
                                th scope="row" { (sending_link(&line.id.to_string())) }
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
                    @if let Some(next) = next { a rel="next" href={ (here) "?after=" (next) } { "Next " (SENDINGS_MAX) } }
                }
            }
        }
    }
}
