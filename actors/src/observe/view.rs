//! The tree as it shows itself, and a line for each payment, payout and withdrawal.

use payferry_domain::outbound::{OutboundId, OutboundStatus};
use payferry_domain::payment::Status;
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, ActorRegistry, NodeState, NodeView, ROOT_NAME};
use serde::Serialize;
use utoipa::ToSchema;

/// View of the tree without payments, payouts and withdrawals, which are only counted.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TreeView {
    /// The root and all nodes below it.
    pub root: NodeView,
}

/// Summary of a live payment.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PaymentLine {
    /// Id of the payment.
    #[schema(value_type = String)]
    pub id: PaymentId,
    /// Status of the payment.
    #[schema(value_type = String)]
    pub status: Status,
    /// Chain of the payment.
    #[schema(value_type = String)]
    pub chain: Chain,
    /// Number of transitions.
    pub version: u32,
    /// Messages waiting for the actor.
    pub mailbox: usize,
    /// Wall-clock time of the actor's start; `None` if it has none, because it only waits.
    #[schema(value_type = Option<i64>)]
    pub since: Option<Timestamp>,
}

/// Summary of a live payout or withdrawal.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OutboundLine {
    /// Id of the payout or withdrawal.
    #[schema(value_type = String)]
    pub id: OutboundId,
    /// Status.
    #[schema(value_type = String)]
    pub status: OutboundStatus,
    /// True if its address waits for a decision.
    pub in_review: bool,
    /// Chain.
    #[schema(value_type = String)]
    pub chain: Chain,
    /// Number of transitions.
    pub version: u32,
    /// Messages waiting for the actor.
    pub mailbox: usize,
    /// Wall-clock time of the actor's start; `None` if it has none, because it only waits.
    #[schema(value_type = Option<i64>)]
    pub since: Option<Timestamp>,
}

/// Summary of an aggregate that an actor keeps in eight bytes.
pub(crate) struct Note {
    /// Position of the status in the list of all.
    pub(crate) status: usize,
    pub(crate) chain: Chain,
    pub(crate) version: u32,
    pub(crate) in_review: bool,
}

impl Note {
    pub(crate) fn pack(self) -> u64 {
        let Self { status, chain, version, in_review } = self;
        u64::from(version) << 32 | u64::from(in_review) << 16 | (chain as u64) << 8 | status as u64
    }

    pub(crate) fn unpack(note: u64) -> Self {
        let place = |shift: u32| usize::try_from(note >> shift & 0xff).unwrap_or_default();
        Self {
            status: place(0),
            chain: Chain::ALL.get(place(8)).copied().unwrap_or(Chain::Base),
            version: u32::try_from(note >> 32).unwrap_or_default(),
            in_review: place(16) == 1,
        }
    }
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
            ActorKind::OutboundSupervisor => NodeView { children_live: outbound_live, ..node },
            _ => node,
        }));
    }
    TreeView { root: with_children(registry.view(ActorKind::Root, ROOT_NAME), children) }
}

fn with_children(node: NodeView, children: Vec<NodeView>) -> NodeView {
    let children_live = children.iter().filter(|child| child.state == NodeState::Running).count();
    NodeView { children_live, children, ..node }
}
