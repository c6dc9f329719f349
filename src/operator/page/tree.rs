//! The supervision tree as a table: root, what runs once, endpoints, and the shards as tiles. Payments are counted in their
//! shards and listed there, payouts and withdrawals at their desk.

use maud::{Markup, html};
use payferry_actors::observe::{ActorKind, Figures, KindView, NodeState, NodeView, TreeView};
use payferry_domain::Timestamp;

use super::words::{Tone, ago, badge, count, grouped, millis, plain};
use super::{incidents, path};

/// Endpoints shown in the tree; the page of webhooks has them all.
const ENDPOINTS_MAX: usize = 6;

/// `given_up` counts the payments, and the payouts and withdrawals, that are quarantined at present: what was released is none
/// of them any more.
pub(super) fn panel(tree: &TreeView, kinds: &[KindView], given_up: (usize, usize), now: Timestamp) -> Markup {
    let root = &tree.root;
    let (shards, others): (Vec<_>, Vec<_>) = root.children.iter().partition(|node| node.kind == ActorKind::Shard);
    let of = |kind| kinds.iter().find(|view| view.kind == kind);
    html! {
        section.panel aria-labelledby="tree" {
            header {
                h2 #tree { "Supervision tree" }
                @if let Some(since) = root.since { p { "runs since " (ago(since, now)) } }
            }
            table {
                thead {
                    tr {
                        th scope="col" { "Actor" }
                        th scope="col" { "State" }
                        th.n scope="col" title="Messages that wait now" { "Mailbox" }
                        th.n.wide scope="col" { "Messages" }
                        th.n scope="col" title="How long a message waited: on average, and at most" { "Wait avg" span.wide { " · max" } }
                        th.n.wide scope="col" title="How long a message was handled: on average, and at most" { "Handling avg · max" }
                        th.n scope="col" { "Restarts" }
                    }
                }
                tbody {
                    (row(root, now, 0))
                    @for node in &others {
                        (row(node, now, 1))
                        @if node.kind == ActorKind::SendingDesk {
                            @if let Some(all) = of(ActorKind::Sending) { (total(all, given_up.1, "payouts and withdrawals at it", 2)) }
                        }
                        @for child in node.children.iter().take(ENDPOINTS_MAX) { (row(child, now, 2)) }
                        @if node.children.len() > ENDPOINTS_MAX {
                            tr.sub2 {
                                td colspan="7" {
                                    a href=(path("webhooks")) { "All " (grouped(node.children.len().try_into().unwrap_or(i128::MAX))) " endpoints" }
                                }
                            }
                        }
                    }
                    @if let Some(all) = of(ActorKind::Shard) { (total(all, 0, "shards", 1)) }
                    @if let Some(all) = of(ActorKind::Payment) { (total(all, given_up.0, "payments in them", 1)) }
                }
            }
            (tiles(&shards))
        }
    }
}

/// One actor, so many levels under the root.
fn row(node: &NodeView, now: Timestamp, depth: usize) -> Markup {
    let name = Some(node.name.as_str()).filter(|name| plain(name) != plain(node.kind.as_str()));
    html! {
        tr id={ "node-" (node.kind.as_str()) "-" (node.name) } data-kind=(node.kind.as_str()) .sub1[depth == 1] .sub2[depth == 2]
            .bad[node.state == NodeState::Quarantined] {
            th scope="row" {
                @match link(node) {
                    Some(href) => a href=(href) { (plain(node.kind.as_str())) @if let Some(name) = name { " " (short_name(name)) } },
                    None => { (plain(node.kind.as_str())) @if let Some(name) = name { " " (short_name(name)) } },
                }
            }
            td { (state(node.state)) }
            (figures(&node.figures))
            td.n { (restarts(node, now)) }
        }
    }
}

/// All actors of a kind, so many levels under the root; so many more are given up.
fn total(all: &KindView, given_up: usize, word: &str, depth: usize) -> Markup {
    let restarts: u64 = all.restarts.values().sum();
    html! {
        tr id={ "kind-" (all.kind.as_str()) } data-kind=(all.kind.as_str()) .sub1[depth == 1] .sub2[depth == 2] {
            th scope="row" { (count(all.live)) " " (word) }
            td { @if given_up > 0 { (badge(&format!("{given_up} given up"), Tone::Bad)) } @else { (badge("running", Tone::Good)) } }
            (figures(&all.figures))
            td.n { span.warn-ink[restarts > 0] { (count(restarts)) } }
        }
    }
}

fn figures(figures: &Figures) -> Markup {
    html! {
        td.n { span.warn-ink[figures.mailbox > MAILBOX_HIGH] { (count(figures.mailbox)) } }
        td.n.wide { (count(figures.messages)) }
        td.n { (millis(figures.wait_ms)) span.wide { " · " (millis(figures.wait_ms_max)) } }
        td.n.wide { (millis(figures.handling_ms)) " · " (millis(figures.handling_ms_max)) }
    }
}

/// More waiting messages than this are worth a second look.
const MAILBOX_HIGH: usize = 1_000;

fn restarts(node: &NodeView, now: Timestamp) -> Markup {
    html! {
        @match &node.last_failure {
            Some(failure) => {
                span.warn-ink title=(failure.reason) { (count(node.restarts)) }
                br; small.wide { (incidents::cause(failure.cause)) ", " (ago(failure.at, now)) }
            }
            None => (count(node.restarts)),
        }
    }
}

fn tiles(shards: &[&NodeView]) -> Markup {
    html! {
        ul.tiles aria-label="Shards" {
            @for shard in shards {
                @let tone = match shard.state {
                    NodeState::Running => None,
                    NodeState::Restarting => Some("warn"),
                    NodeState::Quarantined | NodeState::Stopped => Some("bad"),
                };
                li id={ "node-shard-" (shard.name) } class=[tone] .empty[shard.children_live == 0] {
                    a href={ (path("shards")) "/" (shard.name) }
                        title={ "mailbox " (shard.figures.mailbox) ", " (shard.restarts) " restarts" } {
                        small { "shard " (shard.name) @if shard.state != NodeState::Running { " · " (state_word(shard.state)) } }
                        b { (count(shard.children_live)) }
                    }
                }
            }
        }
    }
}

pub(super) fn state(state: NodeState) -> Markup {
    let tone = match state {
        NodeState::Running => Tone::Good,
        NodeState::Restarting => Tone::Warn,
        NodeState::Quarantined => Tone::Bad,
        NodeState::Stopped => Tone::Idle,
    };
    badge(state_word(state), tone)
}

const fn state_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Running => "running",
        NodeState::Restarting => "restarting",
        NodeState::Quarantined => "quarantined",
        NodeState::Stopped => "stopped",
    }
}

/// Where an actor has a page of its own.
fn link(node: &NodeView) -> Option<String> {
    match node.kind {
        ActorKind::Watcher | ActorKind::Settler => Some(format!("{}/{}", path("chains"), node.name)),
        ActorKind::Endpoint => Some(format!("{}/{}", path("webhooks"), node.name)),
        ActorKind::WebhookSender => Some(path("webhooks")),
        ActorKind::SendingDesk => Some(path("sendings")),
        ActorKind::Shard => Some(format!("{}/{}", path("shards"), node.name)),
        _ => None,
    }
}

/// A PSP's id is as long as a line on a small screen.
fn short_name(name: &str) -> Markup {
    const CHARS_MAX: usize = 14;
    html! {
        @if name.len() > CHARS_MAX && name.is_ascii() {
            span.mono title=(name) { "…" (name[name.len() - 8..]) }
        } @else {
            (name)
        }
    }
}
