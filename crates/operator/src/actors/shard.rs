//! Page of one shard: its actor, and one page of its live payments.

use std::str::FromStr;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::PaymentLine;
use payferry_domain::{PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, NodeView};
use serde::Deserialize;

use crate::Operator;
use crate::actors::panel as actor;
use crate::page::failure::Failure;
use crate::page::path;
use crate::page::shell::{Asked, Page, Place};
use crate::page::words::{ago, count, grouped, payment_link, status};

/// Payments on one page.
pub(super) const PAYMENTS_MAX: usize = 50;

/// Start of a page.
#[derive(Deserialize)]
pub(crate) struct From {
    /// Id of the last item of the previous page.
    after: Option<String>,
}

impl From {
    /// The id after which the page starts, if it is not the first page. `what` is the type of the object.
    pub(crate) fn after<I: FromStr>(self, what: &'static str) -> Result<Option<I>, Failure> {
        let after = self.after.filter(|after| !after.is_empty());
        after.map(|after| after.parse().map_err(|_| Failure::not_found(what, after))).transpose()
    }
}

pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(name): Path<String>,
    Query(from): Query<From>,
    asked: Asked,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let tree = system.tree();
    let found = tree.root.children.into_iter().find(|node| node.kind == ActorKind::Shard && node.name == name);
    let (Some(node), Ok(index)) = (found, name.parse::<usize>()) else { return Err(Failure::not_found("shard", name)) };
    let after = from.after::<PaymentId>("payment")?;
    // Reads one more than it shows, to know if a next page exists.
    let mut lines = system.payments_of_shard(index, after, PAYMENTS_MAX + 1);
    let next = (lines.len() > PAYMENTS_MAX).then(|| lines[PAYMENTS_MAX - 1].id);
    lines.truncate(PAYMENTS_MAX);
    let now = system.clock().real_now();
    let title = format!("Shard {name}");
    Ok(asked.answer(&Page::live(title, Place::Overview, body(&node, &lines, after, next, now))))
}

fn body(
    node: &NodeView,
    lines: &[PaymentLine],
    after: Option<PaymentId>,
    next: Option<PaymentId>,
    now: Timestamp,
) -> Markup {
    let here = format!("{}/{}", path("shards"), node.name);
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "shard" } }
        div.title {
            h1 { "Shard " (node.name) }
            (super::tree::state(node.state))
        }
        (actor::figures(node, now))
        section.panel aria-labelledby="payments" {
            header {
                h2 #payments { "Live payments" }
                p { (grouped(node.children_live.try_into().unwrap_or(i128::MAX))) " actors, by id" @if let Some(after) = after { ", after " code { (after) } } }
            }
            @if lines.is_empty() {
                p.none { @if after.is_some() { "No more payments." } @else { "None. A payment without pending work has no actor." } }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Payment" }
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
                                th scope="row" { (payment_link(&line.id.to_string())) }
                                td { (status(line.status.as_str())) }
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
                nav.pages aria-label="Pages of payments" {
                    @if after.is_some() { a rel="first" href=(here) { "First page" } }
                    @if let Some(next) = next { a rel="next" href={ (here) "?after=" (next) } { "Next " (PAYMENTS_MAX) } }
                }
            }
        }
    }
}
