//! Supervision log: restarts and quarantines of actors, with time and reason.

use std::backtrace::Backtrace;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use ractor::{ActorCell, ActorProcessingErr, SupervisionEvent};
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};
use tokio::sync::watch;
use utoipa::ToSchema;

use super::ActorKind;
use crate::clock::serialize_millis;

/// Maximum number of stored entries; counters are unlimited.
pub const LOG_ENTRIES_MAX: usize = 1_000;
/// Maximum number of characters of a reason.
pub const REASON_CHARS_MAX: usize = 500;
/// Maximum number of payments, payouts and withdrawals with an own record of restarts; the oldest records are dropped.
const RECORDS_MAX: usize = 10_000;

/// Class of a failure.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// The actor panicked.
    Panic,
    /// The actor returned an error.
    Error,
    /// The actor was killed while it was working.
    Killed,
    /// The actor stopped without a request from its supervisor.
    Stopped,
    /// The actor could not be started.
    Start,
}

impl Cause {
    /// Every class.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the class with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.as_str() == name)
    }

    /// Name in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Failure of an actor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ActorFailure {
    /// Time, by the wall clock.
    #[serde(serialize_with = "serialize_millis")]
    #[schema(value_type = i64)]
    pub at: SystemTime,
    /// Class.
    pub cause: Cause,
    /// Message of the panic or error, cut to [`REASON_CHARS_MAX`].
    pub reason: String,
    /// Source location of the panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Stack of the panic.
    #[serde(skip)]
    pub backtrace: Option<Arc<Backtrace>>,
}

/// Action of the supervisor after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Restarted from the database.
    Restarted,
    /// Not restarted: it failed too often in a short time, or must not run.
    Quarantined,
}

impl Action {
    /// Returns the action with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::VARIANTS.iter().copied().find(|action| action.as_str() == name)
    }

    /// Name in the database.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Entry of the supervision log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Incident {
    /// Sequence number, increasing by one.
    pub number: u64,
    /// Time, by the wall clock.
    #[serde(serialize_with = "serialize_millis")]
    #[schema(value_type = i64)]
    pub at: SystemTime,
    /// Kind of the failed actor.
    pub kind: ActorKind,
    /// Name: a payment's or withdrawal's id, a chain, a shard's number.
    pub name: String,
    /// Class of the failure.
    pub cause: Cause,
    /// Message of the panic or error, cut to [`REASON_CHARS_MAX`].
    pub reason: String,
    /// Source location of the panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Stack of the panic. It is not stored.
    #[serde(skip)]
    pub backtrace: Option<Arc<Backtrace>>,
    /// Action of the supervisor.
    pub action: Action,
}

/// Error of a caught panic.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Panicked(pub(super) String);

/// The actor that an event reports as ended, with cause and reason; `None` for other events.
pub fn ended(event: SupervisionEvent) -> Option<(ActorCell, Cause, String)> {
    match event {
        SupervisionEvent::ActorFailed(cell, error) => {
            let cause = cause_of(&error);
            Some((cell, cause, error.to_string()))
        }
        SupervisionEvent::ActorTerminated(cell, _, Some(reason)) => {
            let killed = matches!(reason.as_str(), "killed" | "actor_task_cancelled");
            Some((cell, if killed { Cause::Killed } else { Cause::Stopped }, reason))
        }
        SupervisionEvent::ActorTerminated(cell, _, None) => Some((cell, Cause::Stopped, "it stopped".to_owned())),
        _ => None,
    }
}

fn cause_of(error: &ActorProcessingErr) -> Cause {
    if error.downcast_ref::<Panicked>().is_some() { Cause::Panic } else { Cause::Error }
}

/// Supervision log of one tree.
#[derive(Debug, Default)]
pub struct SupervisionLog {
    inner: Mutex<Inner>,
    /// Number of the newest incident.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Incident>,
    records: HashMap<(ActorKind, String), Record>,
    /// Actors of kinds with very many actors that have a record, oldest record first.
    of_many: VecDeque<(ActorKind, String)>,
}

/// Restarts and last failure of one actor.
#[derive(Debug, Clone, Default)]
struct Record {
    restarts: u64,
    last: Option<ActorFailure>,
}

impl SupervisionLog {
    /// Adds an incident.
    pub(super) fn add(&self, kind: ActorKind, name: &str, failure: &ActorFailure, action: Action) {
        let mut inner = self.inner.lock();
        let record = inner.record(kind, name);
        record.restarts += u64::from(action == Action::Restarted);
        record.last = Some(failure.clone());
        let number = *self.newest.borrow() + 1;
        if inner.recent.len() == LOG_ENTRIES_MAX {
            inner.recent.pop_front();
        }
        let ActorFailure { at, cause, reason, location, backtrace } = failure.clone();
        let name = name.to_owned();
        inner.recent.push_back(Incident { number, at, kind, name, cause, reason, location, backtrace, action });
        // Under the lock, so that numbers increase in the order of the log.
        self.newest.send_replace(number);
    }

    /// Begins with the incidents of earlier runs, oldest first. Only before the first one of this run.
    pub fn restore(&self, earlier: impl IntoIterator<Item = Incident>) {
        let mut inner = self.inner.lock();
        let mut number = *self.newest.borrow();
        for incident in earlier {
            number += 1;
            if inner.recent.len() == LOG_ENTRIES_MAX {
                inner.recent.pop_front();
            }
            inner.recent.push_back(Incident { number, ..incident });
        }
        self.newest.send_replace(number);
    }

    /// Incidents with a number above `after`, oldest first.
    pub fn since(&self, after: u64) -> Vec<Incident> {
        let inner = self.inner.lock();
        let from = inner.recent.partition_point(|incident| incident.number <= after);
        inner.recent.range(from..).cloned().collect()
    }

    /// Up to `limit` stored incidents, newest first.
    pub fn latest(&self, limit: usize) -> Vec<Incident> {
        self.inner.lock().recent.iter().rev().take(limit).cloned().collect()
    }

    /// Up to `limit` stored incidents of one actor, newest first.
    pub fn latest_of(&self, kind: ActorKind, name: &str, limit: usize) -> Vec<Incident> {
        let inner = self.inner.lock();
        let its = inner.recent.iter().rev().filter(|incident| incident.kind == kind && incident.name == name);
        its.take(limit).cloned().collect()
    }

    /// Number of stored incidents.
    pub fn incidents_len(&self) -> usize {
        self.inner.lock().recent.len()
    }

    /// Receiver of the newest incident's number; 0 before the first.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(super) fn failures_of(&self, kind: ActorKind, name: &str) -> (u64, Option<ActorFailure>) {
        let Record { restarts, last } =
            self.inner.lock().records.get(&(kind, name.to_owned())).cloned().unwrap_or_default();
        (restarts, last)
    }
}

impl Inner {
    fn record(&mut self, kind: ActorKind, name: &str) -> &mut Record {
        let key = (kind, name.to_owned());
        if kind.is_one_of_many() && !self.records.contains_key(&key) {
            if self.of_many.len() == RECORDS_MAX
                && let Some(oldest) = self.of_many.pop_front()
            {
                self.records.remove(&oldest);
            }
            self.of_many.push_back(key.clone());
        }
        self.records.entry(key).or_default()
    }
}

pub(super) fn cut(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_oldest_records_except_those_of_permanent_actors() {
        let log = SupervisionLog::default();
        let failure = ActorFailure {
            at: SystemTime::UNIX_EPOCH,
            cause: Cause::Panic,
            reason: "on purpose".to_owned(),
            location: None,
            backtrace: None,
        };
        log.add(ActorKind::OutboundSupervisor, "outbound supervisor", &failure, Action::Restarted);
        for number in 0..RECORDS_MAX {
            log.add(ActorKind::Sending, &format!("wd_{number}"), &failure, Action::Restarted);
        }
        log.add(ActorKind::Payment, "pay_1", &failure, Action::Restarted);
        let restarts = |kind, name| log.failures_of(kind, name).0;
        assert_eq!([restarts(ActorKind::Sending, "wd_0"), restarts(ActorKind::Sending, "wd_1")], [0, 1]);
        assert_eq!(
            [restarts(ActorKind::Payment, "pay_1"), restarts(ActorKind::OutboundSupervisor, "outbound supervisor")],
            [1, 1]
        );
        assert_eq!(log.inner.lock().records.len(), RECORDS_MAX + 1);
    }
}
