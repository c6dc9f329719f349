//! The tree as it shows itself: a node for each permanent actor, figures by kind, and a line for each payment, payout and
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

/// The root's name.
pub(crate) const ROOT_NAME: &str = "root";

/// The whole tree but for payments, which their shards count, and for payouts and withdrawals, which their desk counts.
#[derive(Debug, Clone, Serialize)]
pub struct TreeView {
    /// The root, with everything under it.
    pub root: NodeView,
}

/// How an actor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is there.
    Running,
    /// It failed and is about to be started again.
    Restarting,
    /// It failed too often and waits for an operator.
    Quarantined,
    /// It is not there, as it should be.
    Stopped,
}

/// What is measured of one actor, or of all of a kind. Times are milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Messages that wait now.
    pub mailbox: usize,
    /// Messages taken so far.
    pub messages: u64,
    /// How long a message waited, on average.
    pub wait_ms: f64,
    /// The longest wait.
    pub wait_ms_max: f64,
    /// How long a message was handled, on average; of the journal: a group of units.
    pub handling_ms: f64,
    /// The longest handling.
    pub handling_ms_max: f64,
}

/// A permanent actor.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// What sort it is.
    pub kind: ActorKind,
    /// Which one: a chain, a shard's number, a PSP's id.
    pub name: String,
    /// How it is.
    pub state: NodeState,
    /// Since when it runs, by the wall clock; `None` while it does not.
    pub since: Option<Timestamp>,
    /// What is measured of it, over all its restarts.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts so far.
    pub restarts: u64,
    /// Its last failure.
    pub last_failure: Option<Failure>,
    /// Actors under it that are there; of a shard, and of the desk of payouts and withdrawals: those that are not listed.
    pub children_live: usize,
    /// Actors under it.
    pub children: Vec<Self>,
}

/// All actors of a kind, those that have ended included.
#[derive(Debug, Clone, Serialize)]
pub struct KindView {
    /// Which kind.
    pub kind: ActorKind,
    /// Actors that are there.
    pub live: usize,
    /// What is measured of all of them.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts so far, by class of failure.
    pub restarts: BTreeMap<Cause, u64>,
    /// Given up so far.
    pub quarantined: u64,
    /// The last failure of any of them.
    pub last_failure: Option<Failure>,
}

/// A payment with a live actor, at a glance.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentLine {
    /// Which.
    pub id: PaymentId,
    /// Where it stands.
    pub status: Status,
    /// On which chain.
    pub chain: Chain,
    /// Transitions made.
    pub version: u32,
    /// Messages that wait for it.
    pub mailbox: usize,
    /// Since when its actor runs, by the wall clock.
    pub since: Timestamp,
}

/// A payout or withdrawal with a live actor, at a glance.
#[derive(Debug, Clone, Serialize)]
pub struct SendingLine {
    /// Which.
    pub id: SendingId,
    /// Where it stands.
    pub status: SendingStatus,
    /// Whether its address waits for a decision.
    pub in_review: bool,
    /// On which chain.
    pub chain: Chain,
    /// Transitions made.
    pub version: u32,
    /// Messages that wait for it.
    pub mailbox: usize,
    /// Since when its actor runs, by the wall clock.
    pub since: Timestamp,
}

/// Where the bit of a review stands in a note.
const IN_REVIEW_PLACE: u32 = 16;

/// Status, chain and version in eight bytes.
pub(crate) fn line_note(payment: &Payment) -> u64 {
    note(payment.status as u64, payment.terms.chain, payment.version)
}

/// The same of a payout or withdrawal, and whether it is in review.
pub(crate) fn sending_note(sending: &Sending) -> u64 {
    let in_review = u64::from(sending.is_in_review()) << IN_REVIEW_PLACE;
    note(sending.status as u64, sending.order.asset.chain, sending.version) | in_review
}

fn note(status: u64, chain: Chain, version: u32) -> u64 {
    u64::from(version) << 32 | (chain as u64) << 8 | status
}

/// As [`line_note`] wrote it.
pub(crate) fn read_line_note(note: u64) -> (Status, Chain, u32) {
    let (status, chain, version) = read_note(note);
    (Status::ALL.get(status).copied().unwrap_or(Status::Pending), chain, version)
}

/// As [`sending_note`] wrote it.
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
    /// The tree, with the payments that `payments_live` counts in each shard, and so many payouts and withdrawals.
    pub(crate) fn tree(&self, payments_live: impl Fn(usize) -> usize, sendings_live: usize) -> TreeView {
        let mut children = Vec::new();
        for kind in ActorKind::ALL {
            if kind.is_one_of_many() || matches!(kind, ActorKind::Root | ActorKind::Endpoint) {
                continue;
            }
            let mut nodes = self.nodes(kind);
            // Shards by their number, not by the letters of its name.
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

    /// The figures of every kind.
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
