//! Metrics of actors: every name with its unit and meaning. Labels are kinds and classes of failure, both closed sets;
//! never an id.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, counter, gauge};
use parking_lot::RwLock;

use super::ActorKind;
use super::log::Cause;

crate::metrics! {
    Gauge ACTORS_LIVE = "payferry_actors_live", "Actors that are there, by kind.";
    Gauge MAILBOX_MESSAGES = "payferry_actor_mailbox_messages",
        "Messages that wait in mailboxes, by kind of actor; of the journal: its queues.";
    Histogram(Seconds) WAIT = "payferry_actor_mailbox_wait_seconds",
        "Time a message waited before it was taken, by kind of actor.";
    Histogram(Seconds) HANDLED = "payferry_actor_handling_seconds",
        "Time a message was handled, waiting for others included, by kind of actor; of the journal: a group of units.";
    Counter MESSAGES = "payferry_actor_messages_total", "Messages taken, by kind of actor; of the journal: units.";
    Counter RESTARTS = "payferry_actor_restarts_total",
        "Actors started again after a failure, by kind and class of failure.";
}

/// Time a message waits in a mailbox.
pub const MAILBOX_WAIT: &str = WAIT.name;
/// Time a message is handled.
pub const HANDLING: &str = HANDLED.name;

/// Metric handles of one kind, looked up once.
#[derive(Debug)]
pub(super) struct KindMetrics {
    pub(super) wait: Histogram,
    pub(super) handling: Histogram,
    live: Gauge,
    mailbox: Gauge,
    messages: Counter,
    messages_shown: AtomicU64,
}

impl KindMetrics {
    pub(super) fn new(kind: ActorKind) -> Self {
        show_failures(kind);
        let kind = kind.as_str();
        Self {
            wait: WAIT.histogram(&[("kind", kind)]),
            handling: HANDLED.histogram(&[("kind", kind)]),
            live: gauge!(ACTORS_LIVE.name, "kind" => kind),
            mailbox: gauge!(MAILBOX_MESSAGES.name, "kind" => kind),
            messages: counter!(MESSAGES.name, "kind" => kind),
            messages_shown: AtomicU64::new(0),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn refresh(&self, live: usize, mailbox: usize, messages: u64) {
        self.live.set(live as f64);
        self.mailbox.set(mailbox as f64);
        let shown = self.messages_shown.swap(messages, Ordering::Relaxed);
        self.messages.increment(messages.saturating_sub(shown));
    }
}

/// Exports every cause as 0: an alert on an increase does not fire if a counter first appears at 1.
fn show_failures(kind: ActorKind) {
    for cause in Cause::ALL {
        counter!(RESTARTS.name, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(0);
    }
}

pub(super) fn restarted(kind: ActorKind, cause: Cause) {
    counter!(RESTARTS.name, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(1);
}

/// Counters of one name with one label that takes few values, each looked up once.
#[derive(Debug)]
pub struct Counters {
    name: &'static str,
    label: &'static str,
    handles: RwLock<BTreeMap<&'static str, Counter>>,
}

impl Counters {
    /// Creates counters without known values: each appears on its first increment.
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, handles: RwLock::default() }
    }

    /// Increments the counter of a value. Values are static, so the label is bounded.
    pub fn increment(&self, value: &'static str) {
        if let Some(counter) = self.handles.read().get(value) {
            return counter.increment(1);
        }
        let fresh = || counter!(self.name, self.label => value);
        self.handles.write().entry(value).or_insert_with(fresh).increment(1);
    }
}
