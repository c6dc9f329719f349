//! The tree as it shows itself, and a line for each payment, payout and withdrawal.

use payferry_domain::outbound::{OutboundId, OutboundStatus, OutboundTransfer};
use payferry_domain::payment::{Payment, Status};
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, ActorRegistry, NodeState, NodeView, ROOT_NAME};
use serde::Serialize;

/// View of the tree without payments, payouts and withdrawals, which are only counted.
#[derive(Debug, Clone, Serialize)]
pub struct TreeView {
    /// The root and all nodes below it.
    pub root: NodeView,
}

/// Summary of a payment with a live actor.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentLine {
    /// Id of the payment.
    pub id: PaymentId,
    /// Status of the payment.
    pub status: Status,
    /// Chain of the payment.
    pub chain: Chain,
    /// Number of transitions.
    pub version: u32,
    /// Messages waiting for the actor.
    pub mailbox: usize,
    /// Wall-clock time of the actor's start.
    pub since: Timestamp,
}

/// Summary of a payout or withdrawal with a live actor.
#[derive(Debug, Clone, Serialize)]
pub struct OutboundLine {
    /// Id of the payout or withdrawal.
    pub id: OutboundId,
    /// Status.
    pub status: OutboundStatus,
    /// True if its address waits for a decision.
    pub in_review: bool,
    /// Chain.
    pub chain: Chain,
    /// Number of transitions.
    pub version: u32,
    /// Messages waiting for the actor.
    pub mailbox: usize,
    /// Wall-clock time of the actor's start.
    pub since: Timestamp,
}

/// Position of the review bit in a note.
const IN_REVIEW_PLACE: u32 = 16;

/// Packs status, chain and version into eight bytes.
pub(crate) fn line_note(payment: &Payment) -> u64 {
    note(payment.status as u64, payment.terms.chain, payment.version)
}

/// Packs the same values of a payout or withdrawal, and its review bit.
pub(crate) fn outbound_note(outbound: &OutboundTransfer) -> u64 {
    let in_review = u64::from(outbound.is_in_review()) << IN_REVIEW_PLACE;
    note(outbound.status as u64, outbound.order.asset.chain, outbound.version) | in_review
}

fn note(status: u64, chain: Chain, version: u32) -> u64 {
    u64::from(version) << 32 | (chain as u64) << 8 | status
}

/// Unpacks a note of [`line_note`].
pub(crate) fn read_line_note(note: u64) -> (Status, Chain, u32) {
    let (status, chain, version) = read_note(note);
    (Status::ALL.get(status).copied().unwrap_or(Status::Pending), chain, version)
}

/// Unpacks a note of [`outbound_note`].
pub(crate) fn read_outbound_note(note: u64) -> (OutboundStatus, bool, Chain, u32) {
    let (status, chain, version) = read_note(note);
    let status = OutboundStatus::ALL.get(status).copied().unwrap_or(OutboundStatus::Pending);
    (status, note >> IN_REVIEW_PLACE & 1 == 1, chain, version)
}

fn read_note(note: u64) -> (usize, Chain, u32) {
    let place = |shift: u32| usize::try_from(note >> shift & 0xff).unwrap_or_default();
    let chain = Chain::ALL.get(place(8)).copied().unwrap_or(Chain::Base);
    (place(0), chain, u32::try_from(note >> 32).unwrap_or_default())
}

/// View of the tree. `payments_live` returns the live payments of a shard.
pub(super) fn tree(registry: &ActorRegistry, payments_live: impl Fn(usize) -> usize, outbound_live: usize) -> TreeView {
    let mut children = Vec::new();
    for &kind in ActorKind::ALL {
        if kind.is_one_of_many() || matches!(kind, ActorKind::Root | ActorKind::Endpoint) {
            continue;
        }
        let mut nodes = registry.views(kind);
        // Shards are sorted by number, not by name.
        nodes.sort_by_cached_key(|node| (node.name.parse::<usize>().ok(), node.name.clone()));
        children.extend(nodes.into_iter().map(|node| match kind {
            ActorKind::WebhookSender => with_children(node, registry.views(ActorKind::Endpoint)),
            ActorKind::Shard => {
                let children_live = node.name.parse().map(&payments_live).unwrap_or_default();
                NodeView { children_live, ..node }
            }
            ActorKind::SendingDesk => NodeView { children_live: outbound_live, ..node },
            _ => node,
        }));
    }
    TreeView { root: with_children(registry.view(ActorKind::Root, ROOT_NAME), children) }
}

fn with_children(node: NodeView, children: Vec<NodeView>) -> NodeView {
    let children_live = children.iter().filter(|child| child.state == NodeState::Running).count();
    NodeView { children_live, children, ..node }
}
