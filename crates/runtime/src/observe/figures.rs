//! Measurements of one actor and of a kind, and of messages while they wait in a mailbox.
//!
//! They are atomics without locks. The measurements of a payment take less than a hundred bytes; those of its kind
//! outlive it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::ActorKind;
use super::log::{Cause, Failure};
use super::metrics::{self, KindMetrics};
use super::view::Figures;
use crate::clock::{from_millis, millis};

/// Measurements of one actor.
pub struct ActorMetrics {
    kind: Arc<ActorKindMetrics>,
    since_ms: AtomicI64,
    /// Value that the actor publishes; its kind defines the meaning.
    note: AtomicU64,
    depth: AtomicU32,
    pub(super) totals: Totals,
}

// There is one per live payment.
const _: () = assert!(size_of::<ActorMetrics>() <= 96);

impl ActorMetrics {
    pub(super) fn new(kind: Arc<ActorKindMetrics>) -> Self {
        let (since_ms, note, depth) = (AtomicI64::default(), AtomicU64::default(), AtomicU32::default());
        Self { kind, since_ms, note, depth, totals: Totals::default() }
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

    /// Measurements of the actor.
    pub fn figures(&self) -> Figures {
        self.totals.figures(self.depth())
    }
}

/// Sums for one actor or for all actors of a kind.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) messages: AtomicU64,
    pub(super) handled: AtomicU64,
    pub(super) wait_us: AtomicU64,
    pub(super) handling_us: AtomicU64,
    pub(super) wait_us_max: AtomicU32,
    pub(super) handling_us_max: AtomicU32,
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
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Mostly a read: maxima rarely rise.
fn raise(max: &AtomicU32, us: u64) {
    let us = u32::try_from(us).unwrap_or(u32::MAX);
    if us > max.load(Ordering::Relaxed) {
        max.fetch_max(us, Ordering::Relaxed);
    }
}

/// Measurements of all actors of a kind, including ended ones.
pub struct ActorKindMetrics {
    pub(super) kind: ActorKind,
    live: AtomicI64,
    depth: AtomicI64,
    pub(super) totals: Totals,
    restarts: [AtomicU64; Cause::ALL.len()],
    quarantined: AtomicU64,
    last_failure: Mutex<Option<Failure>>,
    metrics: KindMetrics,
}

impl fmt::Debug for ActorKindMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorKindMetrics")
            .field("kind", &self.kind)
            .field("live", &self.live)
            .field("depth", &self.depth)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

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
            metrics: KindMetrics::new(kind),
        }
    }

    /// Running actors of the kind.
    pub fn live(&self) -> usize {
        usize::try_from(self.live.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Messages waiting in all their mailboxes.
    pub fn depth(&self) -> usize {
        usize::try_from(self.depth.load(Ordering::Relaxed)).unwrap_or_default()
    }

    pub(super) fn restarts(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.restarts[cause as usize].load(Ordering::Relaxed)))
    }

    pub(super) fn quarantined_total(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().clone()
    }

    pub(super) fn restarted(&self, failure: &Failure) {
        self.restarts[failure.cause as usize].fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
        metrics::restarted(self.kind, failure.cause);
    }

    pub(super) fn quarantined(&self, failure: &Failure) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
    }

    /// Updates the metrics that are not counted on the event itself.
    pub(super) fn refresh_metrics(&self) {
        self.metrics.refresh(self.live(), self.depth(), self.totals.messages.load(Ordering::Relaxed));
    }
}

/// Timestamp of a message in a mailbox or queue, which counts as waiting until this is dropped.
pub struct Stamp(Option<Stamped>);

struct Stamped {
    actor_metrics: Arc<ActorMetrics>,
    sent: Instant,
}

impl Stamp {
    /// Counts one more that waits, from now on.
    pub fn new(actor_metrics: &Arc<ActorMetrics>) -> Self {
        actor_metrics.depth.fetch_add(1, Ordering::Relaxed);
        actor_metrics.kind.depth.fetch_add(1, Ordering::Relaxed);
        Self(Some(Stamped { actor_metrics: Arc::clone(actor_metrics), sent: Instant::now() }))
    }

    /// Ends the wait at `now`.
    pub fn taken(self, now: Instant) {
        if let Some(stamped) = &self.0 {
            stamped.actor_metrics.waited(now.saturating_duration_since(stamped.sent));
        }
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        self.actor_metrics.depth.fetch_sub(1, Ordering::Relaxed);
        self.actor_metrics.kind.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Guard that measures the handling of a message.
pub(super) struct Handling<'a>(Option<(&'a ActorMetrics, Instant)>);

impl<'a> Handling<'a> {
    pub(super) fn begin(actor_metrics: &'a ActorMetrics, stamp: Stamp) -> Self {
        let now = Instant::now();
        stamp.taken(now);
        Self(Some((actor_metrics, now)))
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        if let Some((actor_metrics, begun)) = self.0 {
            actor_metrics.handled(begun.elapsed());
        }
    }
}
