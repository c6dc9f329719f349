//! Views of actors: a node for each listed actor, and a summary of each kind.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde::Serialize;

use super::ActorKind;
use super::figures::Totals;
use super::log::{Cause, Failure};
use super::registry::{ActorRegistry, Node};
use crate::clock::serialize_millis_or_null;

/// Name of the root.
pub const ROOT_NAME: &str = "root";

/// State of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is running.
    Running,
    /// It failed and will be restarted soon.
    Restarting,
    /// It failed too often and waits for the operator.
    Quarantined,
    /// It has ended as intended.
    Stopped,
}

/// Measurements of one actor, or of all actors of a kind. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Messages in the mailbox.
    pub mailbox: usize,
    /// Messages handled so far.
    pub messages: u64,
    /// Average wait of a message.
    pub wait_ms: f64,
    /// Longest wait of a message.
    pub wait_ms_max: f64,
    /// Average handling time of a message; of the journal: of a group of writes.
    pub handling_ms: f64,
    /// Longest handling time.
    pub handling_ms_max: f64,
}

/// A permanent actor.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// Kind of the actor.
    pub kind: ActorKind,
    /// Name within the kind: a chain, a shard's number, a PSP's id.
    pub name: String,
    /// State of the actor.
    pub state: NodeState,
    /// Wall-clock time of the last start; `None` while it is not running.
    #[serde(serialize_with = "serialize_millis_or_null")]
    pub since: Option<SystemTime>,
    /// Measurements over all its restarts.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts so far.
    pub restarts: u64,
    /// Last failure.
    pub last_failure: Option<Failure>,
    /// Live children; of a shard and of the supervisor of payouts and withdrawals: those that are not in `children`.
    pub children_live: usize,
    /// Children.
    pub children: Vec<Self>,
}

/// All actors of a kind, including those that have ended.
#[derive(Debug, Clone, Serialize)]
pub struct KindView {
    /// The kind.
    pub kind: ActorKind,
    /// Live actors.
    pub live: usize,
    /// Measurements of all of them.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts so far, by class of failure.
    pub restarts: BTreeMap<Cause, u64>,
    /// Quarantined so far.
    pub quarantined: u64,
    /// Last failure of any of them.
    pub last_failure: Option<Failure>,
}

impl ActorRegistry {
    /// Views of the listed actors of a kind, by name.
    pub fn views(&self, kind: ActorKind) -> Vec<NodeView> {
        self.nodes(kind).iter().map(|node| self.show(node)).collect()
    }

    /// View of a listed actor.
    pub fn view(&self, kind: ActorKind, name: &str) -> NodeView {
        self.show(&self.node(kind, name))
    }

    fn show(&self, node: &Node) -> NodeView {
        let state = node.state();
        let record = self.record_of(node.kind, &node.name);
        NodeView {
            kind: node.kind,
            name: node.name.clone(),
            state,
            since: (state == NodeState::Running).then(|| node.registry.since()),
            figures: node.registry.figures(),
            restarts: record.restarts,
            last_failure: record.last,
            children_live: 0,
            children: Vec::new(),
        }
    }

    /// Measurements of every kind.
    pub fn kinds(&self) -> Vec<KindView> {
        let view = |kind: ActorKind| {
            let registry = self.kind(kind);
            KindView {
                kind,
                live: registry.live(),
                figures: registry.totals.figures(registry.depth()),
                restarts: registry.restarts().filter(|(_, count)| *count > 0).collect(),
                quarantined: registry.quarantined_total(),
                last_failure: registry.last_failure(),
            }
        };
        ActorKind::ALL.into_iter().map(view).collect()
    }
}

impl Totals {
    #[allow(clippy::cast_precision_loss, reason = "sums are far below 2^52 us, which is 142 years")]
    pub(super) fn figures(&self, mailbox: usize) -> Figures {
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
