//! Page of one actor that the tree lists by name: its state and its failures. Failures stay visible after they leave
//! the supervision log. Pages of the actors that the tree only counts: payments, payouts and withdrawals.

use std::str::FromStr;

use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::{OutboundLine, PaymentLine};
use payferry_domain::outbound::OutboundId;
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, Incident, NodeView};
use serde::Deserialize;

use crate::Operator;
use crate::actors::{panel as actor, tree};
use crate::overview::{self, JournalLine, journal_panel};
use crate::page::words::{
    Tone, actor_kind, ago, badge, count, grouped, head, heading, outbound_link, own_name, payment_link, plain, status,
};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};
use crate::payment::incidents_of;

/// Path of an actor's own page. Spaces in its name become underscores.
pub(crate) fn page(kind: ActorKind, name: &str) -> String {
    path(&format!("actors/{}/{}", kind.as_str(), name.replace(' ', "_")))
}

/// Path of the page with the most information about a permanent actor: the page of its subject if that shows the actor
/// too.
pub(crate) fn fullest(kind: ActorKind, name: &str) -> String {
    match kind {
        ActorKind::Watcher | ActorKind::Settler => format!("{}/{name}", path("chains")),
        ActorKind::Endpoint => format!("{}/{name}", path("webhooks")),
        ActorKind::OutboundSupervisor => path("sendings"),
        ActorKind::Shard => format!("{}/{name}", path("shards")),
        kind => page(kind, name),
    }
}

/// `/ops/view/actors/{kind}/{name}`.
pub(crate) async fn show(
    operator: Operator,
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
    let kind = actor_kind(node.kind);
    let name = own_name(node.kind, &node.name).map(plain);
    heading(&name.map_or_else(|| kind.clone(), |name| format!("{kind} {name}")))
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
                @if failures.is_empty() { p.none { "No failures in the log." } } @else { (actor::log(failures, now)) }
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
        ActorKind::ComplianceService => "Verifies customers with the identity provider.",
        ActorKind::OutboundSupervisor => "Supervises payouts and withdrawals.",
        ActorKind::Sending => "Runs one payout or withdrawal.",
        ActorKind::WebhookSender => "Supervises the endpoints, one for each PSP with events to deliver.",
        ActorKind::Endpoint => "Delivers the webhooks of one PSP.",
        ActorKind::Auditor => "Checks the ledger's consistency and the vault balances against it.",
    }
}

/// Returns the path and the label of the page that shows the actor's work.
fn work(node: &NodeView) -> Option<(String, &'static str)> {
    let of_subject = || fullest(node.kind, &node.name);
    match node.kind {
        ActorKind::Watcher | ActorKind::Settler => Some((of_subject(), "Chain")),
        ActorKind::WebhookSender => Some((path("webhooks"), "All endpoints")),
        ActorKind::Endpoint => Some((of_subject(), "Deliveries")),
        ActorKind::OutboundSupervisor => Some((of_subject(), "Live payouts and withdrawals")),
        ActorKind::Shard => Some((of_subject(), "Payments")),
        ActorKind::ComplianceService => Some((path("customers"), "All customers")),
        ActorKind::Auditor => Some((path("stuck"), "Needs attention")),
        _ => None,
    }
}

/// Actors on one page of a list.
const LIVE_MAX: usize = 50;

/// Start of a page.
#[derive(Deserialize)]
pub(crate) struct From {
    /// Id of the last item of the previous page.
    after: Option<String>,
}

impl From {
    /// The id after which the page starts, if it is not the first page. `what` is the type of the object.
    fn after<I: FromStr>(self, what: &'static str) -> Result<Option<I>, Failure> {
        self.after.filter(|after| !after.is_empty()).map(|after| id_of(what, &after)).transpose()
    }
}

/// Page with the live actors of one supervisor.
struct LivePage<'a> {
    title: String,
    /// Its entry in the breadcrumbs.
    crumb: &'static str,
    here: String,
    supervisor: &'a NodeView,
    /// Id and name of the list.
    list: (&'static str, &'static str),
    /// Heading of the first column.
    column: &'static str,
    /// Text of an empty list.
    none: &'static str,
    /// Start of the page, if it is not the first.
    after: Option<String>,
    lines: Vec<LiveLine>,
}

/// One actor of such a list.
struct LiveLine {
    id: String,
    link: Markup,
    status: Markup,
    chain: Chain,
    version: u32,
    mailbox: usize,
    since: Timestamp,
}

/// `/ops/view/shards/{shard}`: the live payments of a shard.
pub(crate) async fn show_shard(
    operator: Operator,
    Path(name): Path<String>,
    Query(from): Query<From>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let tree = system.tree();
    let found = tree.root.children.iter().find(|node| node.kind == ActorKind::Shard && node.name == name);
    let (Some(supervisor), Ok(index)) = (found, name.parse()) else { return Err(Failure::not_found("shard", name)) };
    let after: Option<PaymentId> = from.after("payment")?;
    let line = |PaymentLine { id, status: in_status, chain, version, mailbox, since }| {
        let (id, status) = (PaymentId::to_string(&id), status(in_status.as_str()));
        LiveLine { link: payment_link(&id), id, status, chain, version, mailbox, since }
    };
    let page = LivePage {
        title: format!("Shard {name}"),
        crumb: "shard",
        here: format!("{}/{name}", path("shards")),
        supervisor,
        list: ("payments", "payments"),
        column: "Payment",
        none: if after.is_some() { "No more payments." } else { "None. A payment without pending work has no actor." },
        after: after.map(|after| after.to_string()),
        lines: system.payments_of_shard(index, after, LIVE_MAX + 1).into_iter().map(line).collect(),
    };
    Ok(asked.answer(&page.render(system.clock().real_now())))
}

/// `/ops/view/sendings`: the live payouts and withdrawals.
pub(crate) async fn show_outbound(
    operator: Operator,
    Query(from): Query<From>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let tree = system.tree();
    let found = tree.root.children.iter().find(|node| node.kind == ActorKind::OutboundSupervisor);
    let supervisor = found.ok_or_else(|| Failure::not_found("desk", "sendings"))?;
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
        lines: system.outbound_live(after, LIVE_MAX + 1).into_iter().map(line).collect(),
    };
    Ok(asked.answer(&page.render(system.clock().real_now())))
}

impl LivePage<'_> {
    /// The page. It has one line more than it shows if a next page exists.
    fn render(self, now: Timestamp) -> Page {
        let (id, name) = self.list;
        let shown = &self.lines[..self.lines.len().min(LIVE_MAX)];
        let next = shown.last().filter(|_| self.lines.len() > LIVE_MAX).map(|last| &last.id);
        let body = html! {
            p.crumbs { a href="/ops" { "Overview" } span { (self.crumb) } }
            div.title {
                h1 { (self.title) }
                (tree::state(self.supervisor.state))
            }
            (actor::figures(self.supervisor, now))
            section.panel aria-labelledby=(id) {
                header {
                    h2 id=(id) { "Live " (name) }
                    p { (grouped(self.supervisor.children_live)) " actors, by id" @if let Some(after) = &self.after { ", after " code { (after) } } }
                }
                @if shown.is_empty() { p.none { (self.none) } } @else {
                    table {
                        (head(&[("", self.column), ("", "Status"), ("wide", "Chain"), ("n wide", "Version"), ("n wide", "Mailbox"), ("n wide", "Running since")]))
                        tbody {
                            @for line in shown {
                                tr id=(line.id) {
                                    th scope="row" { (line.link) }
                                    td { (line.status) }
                                    td.wide { (line.chain) }
                                    td.n.wide { (line.version) }
                                    td.n.wide { (count(line.mailbox)) }
                                    td.n.wide { (ago(line.since, now)) }
                                }
                            }
                        }
                    }
                }
                @if self.after.is_some() || next.is_some() {
                    nav.pages aria-label={ "Pages of " (name) } {
                        @if self.after.is_some() { a rel="first" href=(self.here) { "First page" } }
                        @if let Some(next) = next { a rel="next" href={ (self.here) "?after=" (next) } { "Next " (LIVE_MAX) } }
                    }
                }
            }
        };
        Page::live(self.title, NavSection::Overview, body)
    }
}
