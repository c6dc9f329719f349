//! Measurements of one actor and of a kind, of messages while they wait in a mailbox, and their views: a node for each listed
//! actor, and a summary of each kind.
//!
//! Measurements are atomics without locks. Those of a payment take less than a hundred bytes; those of its kind outlive it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use super::ActorKind;
use super::log::{ActorFailure, Cause};
use super::messages::{MessageTable, OwnMessages, Senders};
use super::metrics::{self, KindMetrics};
use super::panics::{self, PanicSource};
use super::registry::{ActorRegistry, Node};
use crate::clock::{from_millis, millis, serialize_millis_or_null};

/// Measurements of one actor.
pub struct ActorMetrics {
    kind: Arc<ActorKindMetrics>,
    since_ms: AtomicI64,
    /// Value that the actor publishes; its kind defines the meaning.
    note: AtomicU64,
    depth: AtomicU32,
    totals: Totals,
    /// `None` for those without names of which there are many.
    own: Option<Box<OwnMessages>>,
}

// There is one per live payment.
const _: () = assert!(size_of::<ActorMetrics>() <= 96);

impl ActorMetrics {
    pub(super) fn new(kind: Arc<ActorKindMetrics>) -> Self {
        let (since_ms, note, depth) = (AtomicI64::default(), AtomicU64::default(), AtomicU32::default());
        let own = OwnMessages::of_one_of(&kind.messages_kept);
        Self { kind, since_ms, note, depth, totals: Totals::default(), own }
    }

    /// Measurements of an actor that is listed by name.
    pub(super) fn listed(kind: Arc<ActorKindMetrics>) -> Self {
        Self { own: Some(Box::default()), ..Self::new(kind) }
    }

    pub(super) fn own_messages(&self) -> Option<&OwnMessages> {
        self.own.as_deref()
    }

    /// Counts a message from the actor that runs in this task.
    pub(super) fn sent_to(&self) {
        self.kind.senders.count();
    }

    /// Keeps the source of a panic until its failure is recorded.
    pub(super) fn panicked(&self, text: &str) {
        self.kind.panicked(text);
    }

    /// Records the start of the actor.
    pub(super) fn began(&self, now: SystemTime) {
        self.since_ms.store(millis(now), Ordering::Relaxed);
        self.kind.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of the actor.
    pub(super) fn ended(&self) {
        self.kind.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Messages waiting in its mailbox.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed) as usize
    }

    /// Time of the last start.
    pub fn since(&self) -> SystemTime {
        from_millis(self.since_ms.load(Ordering::Relaxed))
    }

    /// Value that the actor publishes for observers.
    pub fn note(&self) -> u64 {
        self.note.load(Ordering::Relaxed)
    }

    /// Publishes a value for observers.
    pub fn set_note(&self, note: u64) {
        self.note.store(note, Ordering::Relaxed);
    }

    /// Records the waiting time of a message taken from a queue.
    pub fn waited(&self, waited: Duration) {
        self.totals.waited(waited);
        self.kind.totals.waited(waited);
        self.kind.metrics.wait.record(waited.as_secs_f64());
    }

    /// Records the duration of one piece of work.
    pub fn handled(&self, took: Duration) {
        self.totals.handled(took);
        self.kind.totals.handled(took);
        self.kind.metrics.handling.record(took.as_secs_f64());
    }

    /// Records the handling of a message.
    fn handled_message(&self, name: &'static str, took: Duration) {
        self.handled(took);
        self.kind.messages.handled(name, took);
        if let Some(own) = &self.own {
            own.handled(name, took);
        }
    }

    /// Measurements of the actor.
    pub fn figures(&self) -> ActorFigures {
        self.totals.figures(self.depth())
    }
}

/// Sums for one actor or for all actors of a kind.
#[derive(Debug, Default)]
struct Totals {
    messages: AtomicU64,
    handled: AtomicU64,
    wait_us: AtomicU64,
    handling_us: AtomicU64,
    wait_us_max: AtomicU32,
    handling_us_max: AtomicU32,
}

impl Totals {
    fn waited(&self, waited: Duration) {
        let us = micros(waited);
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.wait_us.fetch_add(us, Ordering::Relaxed);
        raise(&self.wait_us_max, us);
    }

    fn handled(&self, took: Duration) {
        let us = micros(took);
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.handling_us.fetch_add(us, Ordering::Relaxed);
        raise(&self.handling_us_max, us);
    }

    #[allow(clippy::cast_precision_loss, reason = "sums are far below 2^52 us, which is 142 years")]
    fn figures(&self, mailbox: usize) -> ActorFigures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mean = |sum_us: u64, count: u64| if count == 0 { 0.0 } else { sum_us as f64 / count as f64 / 1_000.0 };
        let (messages, handled) = (of(&self.messages), of(&self.handled));
        ActorFigures {
            mailbox,
            messages,
            wait_ms: mean(of(&self.wait_us), messages),
            wait_ms_max: f64::from(self.wait_us_max.load(Ordering::Relaxed)) / 1_000.0,
            handling_ms: mean(of(&self.handling_us), handled),
            handling_ms_max: f64::from(self.handling_us_max.load(Ordering::Relaxed)) / 1_000.0,
        }
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Mostly a read: maxima rarely rise.
pub(super) fn raise(max: &AtomicU32, us: u64) {
    let us = u32::try_from(us).unwrap_or(u32::MAX);
    if us > max.load(Ordering::Relaxed) {
        max.fetch_max(us, Ordering::Relaxed);
    }
}

/// Measurements of all actors of a kind, including ended ones.
#[derive(Debug)]
pub struct ActorKindMetrics {
    pub(super) kind: ActorKind,
    live: AtomicI64,
    depth: AtomicI64,
    totals: Totals,
    restarts: [AtomicU64; Cause::ALL.len()],
    quarantined: AtomicU64,
    last_failure: Mutex<Option<ActorFailure>>,
    /// Sources of panics whose failures are not recorded yet, with the text of the panic.
    panics: Mutex<VecDeque<(String, PanicSource)>>,
    pub(super) messages: MessageTable,
    /// Number of actors without names whose messages are kept.
    messages_kept: Arc<AtomicUsize>,
    pub(super) senders: Senders,
    metrics: KindMetrics,
}

/// Panics of a kind whose failures are not recorded yet. Their supervisors record them within milliseconds.
const PANICS_MAX: usize = 64;

impl ActorKindMetrics {
    pub(super) fn new(kind: ActorKind) -> Self {
        Self {
            kind,
            live: AtomicI64::default(),
            depth: AtomicI64::default(),
            totals: Totals::default(),
            restarts: Default::default(),
            quarantined: AtomicU64::default(),
            last_failure: Mutex::default(),
            panics: Mutex::default(),
            messages: MessageTable::default(),
            messages_kept: Arc::default(),
            senders: Senders::default(),
            metrics: KindMetrics::new(kind),
        }
    }

    fn panicked(&self, text: &str) {
        let Some(source) = panics::take() else { return };
        let mut panics = self.panics.lock();
        if panics.len() == PANICS_MAX {
            panics.pop_front();
        }
        panics.push_back((text.to_owned(), source));
    }

    /// Takes the source of a panic with this text.
    pub(super) fn source_of(&self, text: &str) -> Option<PanicSource> {
        let mut panics = self.panics.lock();
        let place = panics.iter().position(|(known, _)| known == text)?;
        panics.remove(place).map(|(_, source)| source)
    }

    /// Running actors of the kind.
    pub fn live(&self) -> usize {
        usize::try_from(self.live.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Messages waiting in all their mailboxes.
    pub fn depth(&self) -> usize {
        usize::try_from(self.depth.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Number of messages that were taken, and the sum of their waiting times in microseconds.
    pub fn waits(&self) -> (u64, u64) {
        (self.totals.messages.load(Ordering::Relaxed), self.totals.wait_us.load(Ordering::Relaxed))
    }

    fn restarts(&self) -> impl Iterator<Item = (Cause, u64)> {
        let all = Cause::ALL.iter().map(|cause| (*cause, self.restarts[*cause as usize].load(Ordering::Relaxed)));
        all.filter(|(_, count)| *count > 0)
    }

    pub(super) fn restarts_total(&self) -> u64 {
        self.restarts().map(|(_, count)| count).sum()
    }

    pub(super) fn restarted(&self, failure: &ActorFailure) {
        self.restarts[failure.cause as usize].fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
        metrics::restarted(self.kind, failure.cause);
    }

    pub(super) fn quarantined(&self, failure: &ActorFailure) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
    }

    /// Updates the metrics that are not counted on the event itself.
    pub(super) fn refresh_metrics(&self) {
        self.metrics.refresh(self.live(), self.depth(), self.totals.messages.load(Ordering::Relaxed));
    }
}

/// Timestamp of a message in a mailbox or queue, which counts as waiting until this is dropped.
pub struct Stamp {
    actor_metrics: Arc<ActorMetrics>,
    sent: Instant,
}

impl Stamp {
    /// Counts one more that waits, from now on.
    pub fn new(actor_metrics: &Arc<ActorMetrics>) -> Self {
        actor_metrics.depth.fetch_add(1, Ordering::Relaxed);
        actor_metrics.kind.depth.fetch_add(1, Ordering::Relaxed);
        Self { actor_metrics: Arc::clone(actor_metrics), sent: Instant::now() }
    }

    /// Ends the wait at `now`.
    pub fn taken(self, now: Instant) {
        self.actor_metrics.waited(now.saturating_duration_since(self.sent));
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        self.actor_metrics.depth.fetch_sub(1, Ordering::Relaxed);
        self.actor_metrics.kind.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Guard that measures the handling of a message.
pub(super) struct Handling<'a> {
    actor_metrics: &'a ActorMetrics,
    name: &'static str,
    begun: Instant,
}

impl<'a> Handling<'a> {
    pub(super) fn begin(actor_metrics: &'a ActorMetrics, name: &'static str, stamp: Stamp) -> Self {
        let begun = Instant::now();
        stamp.taken(begun);
        Self { actor_metrics, name, begun }
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.actor_metrics.handled_message(self.name, self.begun.elapsed());
    }
}

/// Name of the root.
pub const ROOT_NAME: &str = "root";

/// State of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is running.
    Running,
    /// It failed and will be restarted soon.
    Restarting,
    /// It failed and waits for the operator.
    Quarantined,
    /// It has ended as intended.
    Stopped,
}

/// Measurements of one actor, or of all actors of a kind. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, ToSchema)]
pub struct ActorFigures {
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
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodeView {
    /// Kind of the actor.
    pub kind: ActorKind,
    /// Name within the kind: a chain, a shard's number, a PSP's id.
    pub name: String,
    /// State of the actor.
    pub state: NodeState,
    /// Wall-clock time of the last start; `None` while it is not running.
    #[serde(serialize_with = "serialize_millis_or_null")]
    #[schema(value_type = Option<i64>)]
    pub since: Option<SystemTime>,
    /// Measurements over all its restarts.
    #[serde(flatten)]
    pub figures: ActorFigures,
    /// Restarts so far.
    pub restarts: u64,
    /// Last failure.
    pub last_failure: Option<ActorFailure>,
    /// Live children; of a shard and of the supervisor of payouts and withdrawals: those that are not in `children`.
    pub children_live: usize,
    /// Children.
    #[schema(no_recursion, value_type = Vec<NodeView>)]
    pub children: Vec<Self>,
}

/// All actors of a kind, including those that have ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct KindView {
    /// The kind.
    pub kind: ActorKind,
    /// Live actors.
    pub live: usize,
    /// Measurements of all of them.
    #[serde(flatten)]
    pub figures: ActorFigures,
    /// Restarts so far, by class of failure.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub restarts: BTreeMap<Cause, u64>,
    /// Quarantined so far.
    pub quarantined: u64,
    /// Last failure of any of them.
    pub last_failure: Option<ActorFailure>,
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
        let state = node.state.lock().state;
        let (restarts, last_failure) = self.failures_of(node.kind, &node.name);
        NodeView {
            kind: node.kind,
            name: node.name.clone(),
            state,
            since: (state == NodeState::Running).then(|| node.registry.since()),
            figures: node.registry.figures(),
            restarts,
            last_failure,
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
                restarts: registry.restarts().collect(),
                quarantined: registry.quarantined.load(Ordering::Relaxed),
                last_failure: registry.last_failure.lock().clone(),
            }
        };
        ActorKind::ALL.iter().map(|kind| view(*kind)).collect()
    }
}
