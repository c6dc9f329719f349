//! Messages by name and by sender: how many, how long they were handled, and the last ones of an actor.
//!
//! Names are static, so that a table has as many entries as its actor has kinds of messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use utoipa::ToSchema;

use super::ActorKind;
use super::figures::{ActorMetrics, micros, raise};
use super::registry::ActorRegistry;
use crate::clock::serialize_millis;

/// Number of last messages of an actor.
pub const LAST_MESSAGES: usize = 20;

tokio::task_local! {
    /// Kind of the actor that handles a message in this task.
    pub(super) static HANDLING_KIND: ActorKind;
}

/// Messages of an actor or of a kind, by name.
#[derive(Debug, Default)]
pub(super) struct MessageTable(RwLock<Vec<(&'static str, MessageTotals)>>);

#[derive(Debug, Default)]
struct MessageTotals {
    count: AtomicU64,
    handling_us: AtomicU64,
    handling_us_max: AtomicU32,
}

impl MessageTotals {
    fn add(&self, took: Duration) {
        let us = micros(took);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.handling_us.fetch_add(us, Ordering::Relaxed);
        raise(&self.handling_us_max, us);
    }
}

impl MessageTable {
    pub(super) fn handled(&self, name: &'static str, took: Duration) {
        if let Some((_, totals)) = self.0.read().iter().find(|(known, _)| *known == name) {
            return totals.add(took);
        }
        let mut table = self.0.write();
        // Another task may have added it meanwhile.
        let place = table.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            table.push((name, MessageTotals::default()));
            table.len() - 1
        });
        table[place].1.add(took);
    }

    #[allow(clippy::cast_precision_loss, reason = "sums are far below 2^52 us, which is 142 years")]
    fn views(&self) -> Vec<MessageView> {
        let view = |(name, totals): &(&'static str, MessageTotals)| {
            let count = totals.count.load(Ordering::Relaxed);
            let sum = totals.handling_us.load(Ordering::Relaxed) as f64;
            MessageView {
                name,
                count,
                handling_ms: if count == 0 { 0.0 } else { sum / count as f64 / 1_000.0 },
                handling_ms_max: f64::from(totals.handling_us_max.load(Ordering::Relaxed)) / 1_000.0,
            }
        };
        let mut views: Vec<MessageView> = self.0.read().iter().map(view).collect();
        views.sort_by(|one, other| other.count.cmp(&one.count).then(one.name.cmp(other.name)));
        views
    }
}

/// Number of actors of a kind without names whose messages are kept, so that their memory has a limit.
pub const MESSAGES_KEPT_OF: usize = 10_000;

/// Messages of one actor.
#[derive(Debug, Default)]
pub(super) struct OwnMessages {
    table: MessageTable,
    last: Mutex<VecDeque<LastMessage>>,
    _slot: Option<KeptSlot>,
}

/// One of the [`MESSAGES_KEPT_OF`] slots of a kind, until it is dropped.
#[derive(Debug)]
struct KeptSlot(Arc<AtomicUsize>);

impl Drop for KeptSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OwnMessages {
    /// Messages of an actor without a name; `None` if those of enough actors of its kind are kept.
    pub(super) fn of_one_of(kept: &Arc<AtomicUsize>) -> Option<Box<Self>> {
        let slot = KeptSlot(Arc::clone(kept));
        let others = kept.fetch_add(1, Ordering::Relaxed);
        (others < MESSAGES_KEPT_OF).then(|| Box::new(Self { _slot: Some(slot), ..Self::default() }))
    }

    fn view(&self) -> ActorMessages {
        ActorMessages { by_name: self.table.views(), last: self.last.lock().iter().rev().cloned().collect() }
    }

    pub(super) fn handled(&self, name: &'static str, took: Duration) {
        self.table.handled(name, took);
        let mut last = self.last.lock();
        if last.len() == LAST_MESSAGES {
            last.pop_front();
        }
        last.push_back(LastMessage { name, at: SystemTime::now(), handling_ms: took.as_secs_f64() * 1_000.0 });
    }
}

/// Messages with one name. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MessageView {
    /// Name of the message.
    pub name: &'static str,
    /// Number of handled messages.
    pub count: u64,
    /// Average handling time.
    pub handling_ms: f64,
    /// Longest handling time.
    pub handling_ms_max: f64,
}

/// A handled message.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LastMessage {
    /// Name of the message.
    pub name: &'static str,
    /// End of its handling, by the wall clock.
    #[serde(serialize_with = "serialize_millis")]
    #[schema(value_type = i64)]
    pub at: SystemTime,
    /// Handling time, milliseconds.
    pub handling_ms: f64,
}

/// Messages of one actor.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct ActorMessages {
    /// By name, the most frequent first.
    pub by_name: Vec<MessageView>,
    /// The last ones, newest first.
    pub last: Vec<LastMessage>,
}

/// Messages from actors of one kind to actors of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageEdge {
    /// Kind of the sender; `None` for requests, timers and tasks.
    pub from: Option<ActorKind>,
    /// Kind of the receiver.
    pub to: ActorKind,
    /// Number of messages so far.
    pub messages: u64,
}

/// Counters of received messages by the kind of their sender; the last one is for all senders that are no actors.
#[derive(Debug, Default)]
pub(super) struct Senders([AtomicU64; ActorKind::ALL.len() + 1]);

impl Senders {
    /// Counts a message from the actor that runs in this task.
    pub(super) fn count(&self) {
        let place = HANDLING_KIND.try_with(|kind| *kind as usize).unwrap_or(ActorKind::ALL.len());
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }
}

impl ActorMetrics {
    /// Messages of the actor; `None` if they are not kept.
    pub fn messages(&self) -> Option<ActorMessages> {
        self.own_messages().map(OwnMessages::view)
    }
}

impl ActorRegistry {
    /// Messages of all actors of a kind, by name.
    pub fn messages(&self, kind: ActorKind) -> Vec<MessageView> {
        self.kind(kind).messages.views()
    }

    /// Messages of a listed actor, over all its restarts.
    pub fn messages_of(&self, kind: ActorKind, name: &str) -> ActorMessages {
        self.of(kind, name).messages().unwrap_or_default()
    }

    /// Messages between kinds of actors so far.
    pub fn message_edges(&self) -> Vec<MessageEdge> {
        let of = |to: ActorKind| {
            let counters = self.kind(to).senders.0.iter().enumerate();
            counters.filter_map(move |(place, counter)| {
                let messages = counter.load(Ordering::Relaxed);
                (messages > 0).then(|| MessageEdge { from: ActorKind::ALL.get(place).copied(), to, messages })
            })
        };
        ActorKind::ALL.iter().flat_map(|to| of(*to)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_counts_by_name() {
        let table = MessageTable::default();
        for (name, ms) in [("poll", 2), ("poll", 4), ("nudge", 1)] {
            table.handled(name, Duration::from_millis(ms));
        }
        let view =
            |name, count, handling_ms, handling_ms_max| MessageView { name, count, handling_ms, handling_ms_max };
        assert_eq!(table.views(), [view("poll", 2, 3.0, 4.0), view("nudge", 1, 1.0, 1.0)]);
    }

    #[test]
    fn messages_of_a_limited_number_of_actors_are_kept() {
        let kept = Arc::new(AtomicUsize::new(MESSAGES_KEPT_OF - 1));
        let last = OwnMessages::of_one_of(&kept);
        assert!(last.is_some() && OwnMessages::of_one_of(&kept).is_none());
        drop(last);
        assert!(OwnMessages::of_one_of(&kept).is_some(), "an actor that ends gives its slot up");
    }

    #[test]
    fn an_actor_keeps_its_last_messages() {
        let own = OwnMessages::default();
        for _ in 0..LAST_MESSAGES + 5 {
            own.handled("poll", Duration::ZERO);
        }
        assert_eq!(own.last.lock().len(), LAST_MESSAGES);
    }
}
