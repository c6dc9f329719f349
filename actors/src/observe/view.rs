//! Views of the supervision tree: one node per permanent actor, figures per kind, and one line per payment, payout and
//! withdrawal.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use payferry_domain::payment::{Payment, Status};
use payferry_domain::sending::{Sending, SendingId, SendingStatus};
use payferry_domain::{Chain, PaymentId, Timestamp};
use serde::Serialize;

use super::ActorKind;
use super::books::{Books, Node};
use super::figures::Totals;
use super::log::{Cause, Failure};

/// Name of the root.
pub(crate) const ROOT_NAME: &str = "root";

/// View of the tree without payments, payouts and withdrawals, which are only counted.
#[derive(Debug, Clone, Serialize)]
pub struct TreeView {
    /// The root and all nodes below it.
    pub root: NodeView,
}

/// State of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The actor is running.
    Running,
    /// The actor failed and is about to be restarted.
    Restarting,
    /// The actor failed too often and waits for an operator.
    Quarantined,
    /// The actor is not running, as intended.
    Stopped,
}

/// Measurements of one actor or of a whole kind. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Messages waiting now.
    pub mailbox: usize,
    /// Messages received so far.
    pub messages: u64,
    /// Mean waiting time of a message.
    pub wait_ms: f64,
    /// Longest waiting time.
    pub wait_ms_max: f64,
    /// Mean handling time of a message; for the journal, of a group of writes.
    pub handling_ms: f64,
    /// Longest handling time.
    pub handling_ms_max: f64,
}

/// View of a permanent actor.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// Kind of the actor.
    pub kind: ActorKind,
    /// Name: a chain, a shard's number, a PSP's id.
    pub name: String,
    /// State of the actor.
    pub state: NodeState,
    /// Wall-clock time of the last start; `None` while it is not running.
    pub since: Option<Timestamp>,
    /// Measurements over all restarts.
    #[serde(flatten)]
    pub figures: Figures,
    /// Number of restarts.
    pub restarts: u64,
    /// Last failure.
    pub last_failure: Option<Failure>,
    /// Running actors below it. For a shard, and for the supervisor of payouts and withdrawals: those not listed by
    /// name.
    pub children_live: usize,
    /// Nodes below it.
    pub children: Vec<Self>,
}

/// View of all actors of a kind, including ended ones.
#[derive(Debug, Clone, Serialize)]
pub struct KindView {
    /// The kind.
    pub kind: ActorKind,
    /// Number of running actors.
    pub live: usize,
    /// Measurements of all actors of the kind.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts by class of failure.
    pub restarts: BTreeMap<Cause, u64>,
    /// Number of quarantined actors so far.
    pub quarantined: u64,
    /// Last failure of any actor of the kind.
    pub last_failure: Option<Failure>,
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
pub struct SendingLine {
    /// Id of the payout or withdrawal.
    pub id: SendingId,
    /// Its status.
    pub status: SendingStatus,
    /// True if its address waits for a decision.
    pub in_review: bool,
    /// Its chain.
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
pub(crate) fn sending_note(sending: &Sending) -> u64 {
    let in_review = u64::from(sending.is_in_review()) << IN_REVIEW_PLACE;
    note(sending.status as u64, sending.order.asset.chain, sending.version) | in_review
}

fn note(status: u64, chain: Chain, version: u32) -> u64 {
    u64::from(version) << 32 | (chain as u64) << 8 | status
}

/// Unpacks a note of [`line_note`].
pub(crate) fn read_line_note(note: u64) -> (Status, Chain, u32) {
    let (status, chain, version) = read_note(note);
    (Status::ALL.get(status).copied().unwrap_or(Status::Pending), chain, version)
}

/// Unpacks a note of [`sending_note`].
pub(crate) fn read_sending_note(note: u64) -> (SendingStatus, bool, Chain, u32) {
    let (status, chain, version) = read_note(note);
    let status = SendingStatus::ALL.get(status).copied().unwrap_or(SendingStatus::Pending);
    (status, note >> IN_REVIEW_PLACE & 1 == 1, chain, version)
}

fn read_note(note: u64) -> (usize, Chain, u32) {
    let place = |shift: u32| usize::try_from(note >> shift & 0xff).unwrap_or_default();
    let chain = Chain::ALL.get(place(8)).copied().unwrap_or(Chain::Base);
    (place(0), chain, u32::try_from(note >> 32).unwrap_or_default())
}

impl Books {
    /// View of the tree. `payments_live` counts the payments of each shard; `sendings_live` is the number of payouts
    /// and withdrawals.
    pub(crate) fn tree(&self, payments_live: impl Fn(usize) -> usize, sendings_live: usize) -> TreeView {
        let mut children = Vec::new();
        for kind in ActorKind::ALL {
            if kind.is_one_of_many() || matches!(kind, ActorKind::Root | ActorKind::Endpoint) {
                continue;
            }
            let mut nodes = self.nodes(kind);
            // Sort shards by number, not alphabetically.
            nodes.sort_by_cached_key(|node| (node.name.parse::<usize>().ok(), node.name.clone()));
            children.extend(nodes.iter().map(|node| match kind {
                ActorKind::WebhookSender => {
                    let endpoints = self.nodes(ActorKind::Endpoint);
                    self.show(node, endpoints.iter().map(|endpoint| self.show(endpoint, Vec::new())).collect())
                }
                ActorKind::Shard => {
                    let children_live = node.name.parse().map(&payments_live).unwrap_or_default();
                    NodeView { children_live, ..self.show(node, Vec::new()) }
                }
                ActorKind::SendingDesk => NodeView { children_live: sendings_live, ..self.show(node, Vec::new()) },
                _ => self.show(node, Vec::new()),
            }));
        }
        TreeView { root: self.show(&self.node(ActorKind::Root, ROOT_NAME), children) }
    }

    fn show(&self, node: &Node, children: Vec<NodeView>) -> NodeView {
        let state = node.state();
        let record = self.record_of(node.kind, &node.name);
        NodeView {
            kind: node.kind,
            name: node.name.clone(),
            state,
            since: (state == NodeState::Running).then(|| node.books.since()),
            figures: node.books.figures(),
            restarts: record.restarts,
            last_failure: record.last,
            children_live: children.iter().filter(|child| child.state == NodeState::Running).count(),
            children,
        }
    }

    /// Views of all kinds.
    pub fn kinds(&self) -> Vec<KindView> {
        let view = |kind: ActorKind| {
            let books = self.kind(kind);
            KindView {
                kind,
                live: books.live(),
                figures: books.totals.figures(books.depth()),
                restarts: books.restarts().filter(|(_, count)| *count > 0).collect(),
                quarantined: books.quarantined_total(),
                last_failure: books.last_failure(),
            }
        };
        ActorKind::ALL.into_iter().map(view).collect()
    }
}

impl Totals {
    #[allow(clippy::cast_precision_loss, reason = "sums are far below 2^52 us, which is 142 years")]
    pub(crate) fn figures(&self, mailbox: usize) -> Figures {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mean = |sum_us: u64, count: u64| if count == 0 { 0.0 } else { sum_us as f64 / count as f64 / 1_000.0 };
        let (messages, handled) = (of(&self.messages), of(&self.handled));
        Figures {
            mailbox,
            messages,
            wait_ms: mean(of(&self.wait_us), messages),
            wait_ms_max: f64::from(self.wait_us_max.load(Ordering::Relaxed)) / 1_000.0,
            handling_ms: mean(of(&self.handling_us), handled),
            handling_ms_max: f64::from(self.handling_us_max.load(Ordering::Relaxed)) / 1_000.0,
        }
    }
}
