//! Page of one actor that the tree lists by name: its state and its failures. Failures stay visible after they leave
//! the supervision log.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_runtime::observe::{ActorKind, ActorMessages, Incident, NodeView};

use crate::Operator;
use crate::actors::journal::{self, JournalLine};
use crate::actors::{messages, panel as actor};
use crate::page::words::{actor_kind, fullest_path, heading, own_name, plain};
use crate::page::{Failure, NavSection, Page, PageRequest, path};
use crate::payment::incidents_of;

/// `/ops/view/actors/{kind}/{name}`.
pub(crate) async fn show(
    operator: Operator,
    Path((kind, name)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let root = system.tree().root;
    let is_it = |node: &NodeView| node.kind.as_str() == kind && plain(&node.name) == plain(&name);
    let node = find(&root, &is_it).ok_or_else(|| Failure::not_found("actor", format!("{kind} {name}")))?;
    let failures = incidents_of(system, node.kind, &node.name);
    let writes = (node.kind == ActorKind::Journal).then(|| journal::line(system));
    let messages = system.messages_of(node.kind, &node.name);
    let title = title(node);
    let body = body(node, &failures, &messages, writes.as_ref(), system.clock().real_now());
    Ok(request.answer(&Page::live(title, NavSection::Overview, body)))
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

fn body(
    node: &NodeView,
    failures: &[Incident],
    messages: &ActorMessages,
    writes: Option<&JournalLine>,
    now: Timestamp,
) -> Markup {
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "actor" } }
        div.title {
            h1 { (title(node)) }
            (actor::state(node.state))
            p {
                (duty(node.kind))
                @if let Some((href, words)) = work(node) { " " a href=(href) { (words) } }
            }
        }
        div.col {
            (actor::figures(node, now))
            @if let Some(writes) = writes { (journal::panel(&writes.stats)) }
            (messages::of_actor(messages, "handled since the service started", now))
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
        ActorKind::Announcer => "Moves the events of customers into the feed.",
        ActorKind::Auditor => "Checks the ledger's consistency and the vault balances against it.",
    }
}

/// Returns the path and the label of the page that shows the actor's work.
fn work(node: &NodeView) -> Option<(String, &'static str)> {
    let of_subject = || fullest_path(node.kind, &node.name);
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
