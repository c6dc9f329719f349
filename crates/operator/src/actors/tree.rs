//! Supervision tree as a table: the root, single actors, endpoints, and the shards as tiles. Payments are counted in
//! their shards and listed there; payouts and withdrawals are counted and listed at their supervisor.

use maud::{Markup, html};
use payferry_actors::observe::{QuarantineCounts, TreeView};
use payferry_domain::Timestamp;
use payferry_runtime::observe::{ActorFigures, ActorKind, KindView, NodeState, NodeView};

use crate::actors::panel::{cause, in_words, state};
use crate::page::path;
use crate::page::words::{Tone, actor_kind, ago, badge, count, fullest_path, grouped, millis, own_name};

/// Endpoints shown in the tree. The webhooks page lists all of them.
const ENDPOINTS_MAX: usize = 6;

/// `given_up`: numbers of those that are quarantined now. Released ones do not count.
pub(crate) fn panel(tree: &TreeView, kinds: &[KindView], given_up: QuarantineCounts, now: Timestamp) -> Markup {
    let root = &tree.root;
    let (shards, others): (Vec<_>, Vec<_>) = root.children.iter().partition(|node| node.kind == ActorKind::Shard);
    let of = |kind| kinds.iter().find(|view| view.kind == kind);
    html! {
        section.panel aria-labelledby="tree" {
            header {
                h2 #tree { "Supervision tree" }
                a.more href=(path("actors")) { "all actors" }
                @if let Some(since) = root.since { p { "running since " (ago(since, now)) } }
            }
            table {
                thead {
                    tr {
                        th scope="col" { "Actor" }
                        th scope="col" { "State" }
                        th.n scope="col" title="Messages in the queue now" { "Mailbox" }
                        th.n.wide scope="col" { "Messages" }
                        th.n scope="col" title="Time that a message waited: average and maximum" { "Wait avg" span.wide { " · max" } }
                        th.n.wide scope="col" title="Time to handle a message: average and maximum" { "Handling avg · max" }
                        th.n scope="col" { "Restarts" }
                    }
                }
                tbody {
                    (row(root, now, 0))
                    @for node in &others {
                        (row(node, now, 1))
                        @if node.kind == ActorKind::OutboundSupervisor {
                            @if let Some(all) = of(ActorKind::Sending) { (total(all, all.live, &very_many(all, given_up.outbound), "payouts and withdrawals", 2)) }
                        }
                        @for child in endpoints(node).into_iter().take(ENDPOINTS_MAX) { (row(child, now, 2)) }
                        @if node.children.len() > ENDPOINTS_MAX {
                            tr.sub2 {
                                td colspan="7" {
                                    a href=(path("webhooks")) { "All " (grouped(node.children.len())) " endpoints" }
                                }
                            }
                        }
                    }
                    @if let Some(all) = of(ActorKind::Shard) { (total(all, shards.len(), &each(&shards), "shards", 1)) }
                    @if let Some(all) = of(ActorKind::Payment) { (total(all, all.live, &very_many(all, given_up.payments), "payments", 1)) }
                }
            }
            (tiles(&shards))
        }
    }
}

/// Row of one actor, `depth` levels below the root.
fn row(node: &NodeView, now: Timestamp, depth: usize) -> Markup {
    let name = own_name(node.kind, &node.name);
    html! {
        tr id={ "node-" (node.kind.as_str()) "-" (node.name) } data-kind=(node.kind.as_str()) .sub1[depth == 1] .sub2[depth == 2]
            .bad[node.state == NodeState::Quarantined] {
            th scope="row" {
                a href=(fullest_path(node.kind, &node.name)) { (actor_kind(node.kind)) @if let Some(name) = name { " " (short_name(name)) } }
            }
            td { (state(node.state)) }
            (figures(&node.figures))
            td.n { (restarts(node, now)) }
        }
    }
}

/// Endpoints, those that are not running first. A long list is cut.
fn endpoints(sender: &NodeView) -> Vec<&NodeView> {
    let mut endpoints: Vec<&NodeView> = sender.children.iter().collect();
    endpoints.sort_by_key(|endpoint| endpoint.state == NodeState::Running);
    endpoints
}

/// States of the actors that differ from the normal state, each with its count.
fn each(nodes: &[&NodeView]) -> Markup {
    let states = [NodeState::Restarting, NodeState::Quarantined, NodeState::Stopped];
    let abnormal = states.map(|state| (in_words(state), nodes.iter().filter(|node| node.state == state).count()));
    let abnormal: Vec<_> = abnormal.into_iter().filter(|(_, number)| *number > 0).collect();
    html! {
        @for ((word, tone), number) in &abnormal { (badge(&format!("{number} {word}"), *tone)) " " }
        @if abnormal.is_empty() && !nodes.is_empty() { (state(NodeState::Running)) }
    }
}

/// The same for actors that are only counted: payments, payouts and withdrawals.
fn very_many(all: &KindView, given_up: usize) -> Markup {
    html! {
        @if given_up > 0 { (badge(&format!("{given_up} quarantined"), Tone::Bad)) }
        @else if all.live > 0 { (state(NodeState::Running)) }
    }
}

/// Row with the number of actors of a kind and their state, `depth` levels below the root.
fn total(all: &KindView, number: usize, how: &Markup, word: &str, depth: usize) -> Markup {
    let restarts: u64 = all.restarts.values().sum();
    html! {
        tr id={ "kind-" (all.kind.as_str()) } data-kind=(all.kind.as_str()) .sub1[depth == 1] .sub2[depth == 2] {
            th scope="row" { (count(number)) " " (word) }
            td { (how) }
            (figures(&all.figures))
            td.n { span.warn-ink[restarts > 0] { (count(restarts)) } }
        }
    }
}

fn figures(figures: &ActorFigures) -> Markup {
    html! {
        td.n { span.warn-ink[figures.mailbox > MAILBOX_HIGH] { (count(figures.mailbox)) } }
        td.n.wide { (count(figures.messages)) }
        td.n { (millis(figures.wait_ms)) span.wide { " · " (millis(figures.wait_ms_max)) } }
        td.n.wide { (millis(figures.handling_ms)) " · " (millis(figures.handling_ms_max)) }
    }
}

/// Number of queued messages above which a mailbox is highlighted.
const MAILBOX_HIGH: usize = 1_000;

fn restarts(node: &NodeView, now: Timestamp) -> Markup {
    html! {
        @match &node.last_failure {
            Some(failure) => {
                span.warn-ink title=(failure.reason) { (count(node.restarts)) }
                br; small.wide { (cause(failure.cause)) ", " (ago(failure.at, now)) }
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
                        small { "shard " (shard.name) @if shard.state != NodeState::Running { " · " (in_words(shard.state).0) } }
                        b { (count(shard.children_live)) }
                    }
                }
            }
        }
    }
}

/// Shortened name: a PSP's id is as long as a line on a small screen.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: ActorKind, name: &str, state: NodeState) -> NodeView {
        NodeView {
            kind,
            name: name.to_owned(),
            state,
            since: None,
            figures: ActorFigures::default(),
            restarts: 0,
            last_failure: None,
            children_live: 0,
            children: Vec::new(),
        }
    }

    #[test]
    fn a_group_is_running_only_if_every_actor_is_running() {
        let of = |states: &[NodeState]| {
            let nodes: Vec<_> = states.iter().map(|state| node(ActorKind::Shard, "0", *state)).collect();
            each(&nodes.iter().collect::<Vec<_>>()).into_string()
        };
        assert!(of(&[NodeState::Running; 3]).contains("running"));
        let some = of(&[NodeState::Restarting, NodeState::Running, NodeState::Stopped, NodeState::Restarting]);
        assert!(some.contains("2 restarting") && some.contains("1 stopped") && !some.contains("running"), "{some}");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn shows_endpoints_that_are_not_running_first() {
        let mut sender = node(ActorKind::WebhookSender, "webhook sender", NodeState::Running);
        let endpoint = |nth: usize| {
            let state = if nth < 7 { NodeState::Running } else { NodeState::Restarting };
            node(ActorKind::Endpoint, &format!("psp_{nth}"), state)
        };
        sender.children = (0..9).map(endpoint).collect();
        let mut root = node(ActorKind::Root, "root", NodeState::Running);
        root.children = vec![sender];
        let shown = panel(&TreeView { root }, &[], QuarantineCounts::default(), Timestamp(0)).into_string();
        let places: Vec<_> = ["psp_7", "psp_8", "psp_0"].iter().map(|id| shown.find(&format!("-{id}\""))).collect();
        assert!(places[0].is_some() && places.is_sorted(), "{places:?} in {shown}");
        assert_eq!(shown.matches("data-kind=\"endpoint\"").count(), ENDPOINTS_MAX);
        assert!(shown.contains("All 9 endpoints"), "{shown}");
    }
}
