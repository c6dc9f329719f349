//! Page of one actor that the tree lists by name: its state and its failures. Failures stay visible after they leave
//! the supervision log.

use std::str::FromStr;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::PaymentLine;
use payferry_domain::{PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, Incident, NodeView};
use serde::Deserialize;

use crate::Operator;
use crate::actors::{incidents, panel as actor, tree};
use crate::overview::page::journal_panel;
use crate::overview::{self, JournalLine};
use crate::page::failure::Failure;
use crate::page::path;
use crate::page::shell::{NavSection, Page, PageRequest};
use crate::page::words::{ago, count, grouped, payment_link, plain, status};
use crate::payment::incidents_of;

/// Path of an actor's page. Spaces in its name become underscores.
pub(crate) fn page(kind: ActorKind, name: &str) -> String {
    path(&format!("actors/{}/{}", kind.as_str(), name.replace(' ', "_")))
}

/// `/ops/view/actors/{kind}/{name}`.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Path((kind, name)): Path<(String, String)>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let root = system.tree().root;
    let is_it = |node: &NodeView| node.kind.as_str() == kind && plain(&node.name) == plain(&name);
    let node = find(&root, &is_it).ok_or_else(|| Failure::not_found("actor", format!("{kind} {name}")))?;
    let failures = incidents_of(system, node.kind, &node.name);
    let journal = (node.kind == ActorKind::Journal).then(|| overview::journal(system));
    let title = title(node);
    let body = body(node, &failures, journal.as_ref(), system.clock().real_now());
    Ok(asked.answer(&Page::live(title, NavSection::Overview, body)))
}

fn find<'a>(node: &'a NodeView, is_it: &impl Fn(&NodeView) -> bool) -> Option<&'a NodeView> {
    if is_it(node) { Some(node) } else { node.children.iter().find_map(|child| find(child, is_it)) }
}

/// Title of an actor: its kind, and its name where there are several of the kind.
fn title(node: &NodeView) -> String {
    let kind = plain(node.kind.as_str());
    let name = Some(plain(&node.name)).filter(|name| *name != kind);
    let words = name.map_or_else(|| kind.clone(), |name| format!("{kind} {name}"));
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn body(node: &NodeView, failures: &[Incident], journal: Option<&JournalLine>, now: Timestamp) -> Markup {
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "actor" } }
        div.title {
            h1 { (title(node)) }
            (tree::state(node.state))
            p {
                (duty(node.kind))
                @if let Some((href, words)) = work(node) { " " a href=(href) { (words) } }
            }
        }
        div.col {
            (actor::figures(node, now))
            @if let Some(journal) = journal { (journal_panel(&journal.stats)) }
            section.panel aria-labelledby="failures" {
                header { h2 #failures { "Failures" } p { "from the supervision log" } }
                @if failures.is_empty() { p.none { "No failures in the log." } } @else { (incidents::list(failures, now)) }
            }
        }
    }
}

/// Describes the purpose of an actor of this kind.
const fn duty(kind: ActorKind) -> &'static str {
    match kind {
        ActorKind::Root => "Supervises all permanent actors.",
        ActorKind::Journal => "Writes payments to the database, many writes in one commit.",
        ActorKind::Shard => "Supervises one part of the live payments.",
        ActorKind::Payment => "Runs one payment.",
        ActorKind::Watcher => "Reads a chain and notifies payments about transfers and finality.",
        ActorKind::Settler => "Sends transactions to a chain: settlements and outbound transfers.",
        ActorKind::Screening => "Screens the source of funds with the screening provider.",
        ActorKind::ComplianceDesk => "Verifies customers with the identity provider.",
        ActorKind::SendingDesk => "Supervises payouts and withdrawals.",
        ActorKind::Sending => "Runs one payout or withdrawal.",
        ActorKind::WebhookSender => "Supervises the endpoints, one for each PSP with events to deliver.",
        ActorKind::Endpoint => "Delivers the webhooks of one PSP.",
        ActorKind::Auditor => "Checks the ledger's consistency and the vault balances against it.",
    }
}

/// Returns the path and the label of the page that shows the actor's work.
fn work(node: &NodeView) -> Option<(String, &'static str)> {
    match node.kind {
        ActorKind::Watcher | ActorKind::Settler => Some((format!("{}/{}", path("chains"), node.name), "Chain")),
        ActorKind::WebhookSender => Some((path("webhooks"), "All endpoints")),
        ActorKind::Endpoint => Some((format!("{}/{}", path("webhooks"), node.name), "Deliveries")),
        ActorKind::SendingDesk => Some((path("sendings"), "Live payouts and withdrawals")),
        ActorKind::Shard => Some((format!("{}/{}", path("shards"), node.name), "Payments")),
        ActorKind::ComplianceDesk => Some((path("customers"), "All customers")),
        ActorKind::Auditor => Some((path("stuck"), "Needs attention")),
        _ => None,
    }
}

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

pub(crate) async fn show_shard(
    State(operator): State<Operator>,
    Path(name): Path<String>,
    Query(from): Query<From>,
    asked: PageRequest,
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
    Ok(asked.answer(&Page::live(title, NavSection::Overview, shard_body(&node, &lines, after, next, now))))
}

fn shard_body(
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
