//! Metrics of actors: every name with its unit and meaning. Labels are kinds and classes of failure, both closed sets;
//! never an id.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use parking_lot::RwLock;

use super::ActorKind;
use super::log::Cause;

const ACTORS_LIVE: &str = "payferry_actors_live";
const MAILBOX_MESSAGES: &str = "payferry_actor_mailbox_messages";
/// Time a message waits in a mailbox.
pub const MAILBOX_WAIT: &str = "payferry_actor_mailbox_wait_seconds";
/// Time a message is handled.
pub const HANDLING: &str = "payferry_actor_handling_seconds";
const MESSAGES: &str = "payferry_actor_messages_total";
const RESTARTS: &str = "payferry_actor_restarts_total";

/// Registers the help texts of the metrics.
pub(super) fn describe() {
    describe_gauge!(ACTORS_LIVE, "Actors that are there, by kind.");
    describe_gauge!(MAILBOX_MESSAGES, "Messages that wait in mailboxes, by kind of actor; of the journal: its queues.");
    describe_histogram!(MAILBOX_WAIT, Unit::Seconds, "Time a message waited before it was taken, by kind of actor.");
    describe_histogram!(
        HANDLING,
        Unit::Seconds,
        "Time a message was handled, waiting for others included, by kind of actor; of the journal: a group of units."
    );
    describe_counter!(MESSAGES, "Messages taken, by kind of actor; of the journal: units.");
    describe_counter!(RESTARTS, "Actors started again after a failure, by kind and class of failure.");
}

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
            wait: histogram!(MAILBOX_WAIT, "kind" => kind),
            handling: histogram!(HANDLING, "kind" => kind),
            live: gauge!(ACTORS_LIVE, "kind" => kind),
            mailbox: gauge!(MAILBOX_MESSAGES, "kind" => kind),
            messages: counter!(MESSAGES, "kind" => kind),
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
        counter!(RESTARTS, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(0);
    }
}

pub(super) fn restarted(kind: ActorKind, cause: Cause) {
    counter!(RESTARTS, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(1);
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

    /// Creates counters for all values of the label, so that each is exported as 0 from the start: an alert on an
    /// increase does not fire if a counter first appears at 1.
    pub fn closed(name: &'static str, label: &'static str, values: impl IntoIterator<Item = &'static str>) -> Self {
        let handles = values.into_iter().map(|value| (value, counter!(name, label => value))).collect();
        Self { name, label, handles: RwLock::new(handles) }
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
