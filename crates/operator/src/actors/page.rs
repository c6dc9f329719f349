//! Page of one actor that the tree lists by name: its state and its failures. Failures stay visible after they leave
//! the supervision log.

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_runtime::observe::{ActorKind, Incident, NodeView};

use crate::Operator;
use crate::actors::{incidents, panel as actor, tree};
use crate::overview::{self, JournalLine, payments};
use crate::page::failure::Failure;
use crate::page::path;
use crate::page::shell::{Asked, Page, Place};
use crate::page::words::plain;
use crate::payment::incidents_of;

/// Path of an actor's page. Spaces in its name become underscores.
pub(crate) fn page(kind: ActorKind, name: &str) -> String {
    path(&format!("actors/{}/{}", kind.as_str(), name.replace(' ', "_")))
}

/// `/ops/view/actors/{kind}/{name}`.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Path((kind, name)): Path<(String, String)>,
    asked: Asked,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let root = system.tree().root;
    let is_it = |node: &NodeView| node.kind.as_str() == kind && plain(&node.name) == plain(&name);
    let node = find(&root, &is_it).ok_or_else(|| Failure::not_found("actor", format!("{kind} {name}")))?;
    let failures = incidents_of(system, node.kind, &node.name);
    let journal = (node.kind == ActorKind::Journal).then(|| overview::journal(system));
    let title = title(node);
    let body = body(node, &failures, journal.as_ref(), system.clock().real_now());
    Ok(asked.answer(&Page::live(title, Place::Overview, body)))
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
            @if let Some(journal) = journal { (payments::journal(&journal.stats)) }
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
