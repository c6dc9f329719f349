//! The supervision log: who was restarted, when and why, and who was given up.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::SystemTime;

use parking_lot::Mutex;
use ractor::{ActorCell, ActorProcessingErr, SupervisionEvent};
use serde::Serialize;
use tokio::sync::watch;

use super::ActorKind;
use crate::clock::serialize_millis;

/// Entries kept; the counters go on.
pub const LOG_ENTRIES_MAX: usize = 1_000;
/// Characters kept of a reason.
pub const REASON_CHARS_MAX: usize = 500;
/// Payments, payouts and withdrawals whose restarts are remembered one by one; the oldest are forgotten first.
const RECORDS_MAX: usize = 10_000;

/// What class of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It panicked.
    Panic,
    /// It gave up with an error.
    Error,
    /// It was killed in the middle of what it did.
    Killed,
    /// It stopped, though nobody had asked its supervisor.
    Stopped,
    /// It could not be started.
    Start,
}

impl Cause {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Panic, Self::Error, Self::Killed, Self::Stopped, Self::Start];

    /// The name as it stands in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Error => "error",
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Start => "start",
        }
    }
}

/// A failure of an actor.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// When, by the wall clock.
    #[serde(serialize_with = "serialize_millis")]
    pub at: SystemTime,
    /// Its class.
    pub cause: Cause,
    /// Why: the panic's or error's message, cut to [`REASON_CHARS_MAX`].
    pub reason: String,
}

/// What the supervisor did about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Started again from the database.
    Restarted,
    /// Not started again: it failed too often in too short a time.
    Quarantined,
}

/// One line of the supervision log.
#[derive(Debug, Clone, Serialize)]
pub struct Incident {
    /// Grows by one with each.
    pub number: u64,
    /// When, by the wall clock.
    #[serde(serialize_with = "serialize_millis")]
    pub at: SystemTime,
    /// What failed.
    pub kind: ActorKind,
    /// Which one: a payment's or withdrawal's id, a chain, a shard's number.
    pub name: String,
    /// The class of the failure.
    pub cause: Cause,
    /// Why: the panic's or error's message, cut to [`REASON_CHARS_MAX`].
    pub reason: String,
    /// What was done.
    pub action: Action,
}

/// A panic that was caught, told apart from an error.
#[derive(Debug)]
pub(super) struct Panicked(pub(super) String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Panicked {}

/// Whose end an event tells of, and why it ended; `None` if it tells of none.
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

/// The log of one tree.
#[derive(Debug)]
pub(super) struct SupervisionLog {
    inner: Mutex<Inner>,
    /// The number of the newest incident.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Incident>,
    restarts: BTreeMap<ActorKind, u64>,
    records: HashMap<(ActorKind, String), Record>,
    /// Those of very many with a record, the oldest record first.
    of_many: VecDeque<(ActorKind, String)>,
}

/// How one actor fared.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    pub(super) restarts: u64,
    pub(super) last: Option<Failure>,
}

impl Default for SupervisionLog {
    fn default() -> Self {
        Self { inner: Mutex::default(), newest: watch::Sender::new(0) }
    }
}

impl SupervisionLog {
    pub(super) fn restarted(&self, kind: ActorKind, name: &str, failure: &Failure) {
        let mut inner = self.inner.lock();
        *inner.restarts.entry(kind).or_default() += 1;
        inner.record(kind, name).restarts += 1;
        self.push(inner, kind, name, failure, Action::Restarted);
    }

    pub(super) fn quarantined(&self, kind: ActorKind, name: &str, failure: &Failure) {
        self.push(self.inner.lock(), kind, name, failure, Action::Quarantined);
    }

    fn push(
        &self,
        mut inner: parking_lot::MutexGuard<'_, Inner>,
        kind: ActorKind,
        name: &str,
        failure: &Failure,
        action: Action,
    ) {
        inner.record(kind, name).last = Some(failure.clone());
        let number = *self.newest.borrow() + 1;
        if inner.recent.len() == LOG_ENTRIES_MAX {
            inner.recent.pop_front();
        }
        let Failure { at, cause, reason } = failure.clone();
        inner.recent.push_back(Incident { number, at, kind, name: name.to_owned(), cause, reason, action });
        // Under the lock, so that numbers grow in the order of the log.
        self.newest.send_replace(number);
    }

    /// Incidents with a number above `after`, oldest first.
    pub(super) fn since(&self, after: u64) -> Vec<Incident> {
        let inner = self.inner.lock();
        let from = inner.recent.partition_point(|incident| incident.number <= after);
        inner.recent.range(from..).cloned().collect()
    }

    /// The newest incidents that are kept, at most so many, the newest first.
    pub(super) fn latest(&self, limit: usize) -> Vec<Incident> {
        self.inner.lock().recent.iter().rev().take(limit).cloned().collect()
    }

    /// The same of one actor.
    pub(super) fn latest_of(&self, kind: ActorKind, name: &str, limit: usize) -> Vec<Incident> {
        let inner = self.inner.lock();
        let its = inner.recent.iter().rev().filter(|incident| incident.kind == kind && incident.name == name);
        its.take(limit).cloned().collect()
    }

    /// Incidents that are kept.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().recent.len()
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(super) fn restarts(&self) -> BTreeMap<ActorKind, u64> {
        self.inner.lock().restarts.clone()
    }

    pub(super) fn record_of(&self, kind: ActorKind, name: &str) -> Record {
        self.inner.lock().records.get(&(kind, name.to_owned())).cloned().unwrap_or_default()
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
    fn of_very_many_the_oldest_records_are_forgotten_and_permanent_actors_keep_theirs() {
        let log = SupervisionLog::default();
        let failure = Failure { at: SystemTime::UNIX_EPOCH, cause: Cause::Panic, reason: "on purpose".to_owned() };
        log.restarted(ActorKind::SendingDesk, "sending desk", &failure);
        for number in 0..RECORDS_MAX {
            log.restarted(ActorKind::Sending, &format!("wd_{number}"), &failure);
        }
        log.restarted(ActorKind::Payment, "pay_1", &failure);
        let restarts = |kind, name| log.record_of(kind, name).restarts;
        assert_eq!([restarts(ActorKind::Sending, "wd_0"), restarts(ActorKind::Sending, "wd_1")], [0, 1]);
        assert_eq!([restarts(ActorKind::Payment, "pay_1"), restarts(ActorKind::SendingDesk, "sending desk")], [1, 1]);
        assert_eq!(log.inner.lock().records.len(), RECORDS_MAX + 1);
    }
}
