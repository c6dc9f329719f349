//! Statistics of the journal.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_domain::Timestamp;

/// Statistics of the journal since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JournalStats {
    /// Groups committed.
    pub groups: u64,
    /// Committed writes.
    pub units: u64,
    /// Writes in the largest group.
    pub group_units_max: usize,
    /// Time from `BEGIN` to the end of `COMMIT`, total of all groups, in microseconds.
    pub commit_time_us: u64,
    /// Longest of these times, in microseconds.
    pub commit_time_us_max: u64,
    /// Writes that failed a precondition.
    pub conflicts: u64,
    /// Writes that the database rejected.
    pub refused: u64,
    /// Writes that were not committed, or may not have been, for reasons other than a precondition (includes rejected
    /// ones).
    pub failed: u64,
    /// Retries of groups, because of contention or an unavailable database.
    pub retries: u64,
    /// Panics and restarts of the task.
    pub panics: u64,
    /// Current length of the queue of transitions.
    pub transitions_queued: usize,
    /// Current length of the queue of initiations.
    pub initiations_queued: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    groups: AtomicU64,
    units: AtomicU64,
    group_units_max: AtomicUsize,
    commit_time_us: AtomicU64,
    commit_time_us_max: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) panics: AtomicU64,
    /// Reason why the last group failed; `None` after a successful commit.
    hindered: Mutex<Option<(Instant, CommitBlocker)>>,
}

/// Reason why groups cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CommitBlocker {
    /// Start time, by the wall clock.
    pub since: Timestamp,
    /// Description of the database error, without data of the writes.
    pub why: Cow<'static, str>,
}

/// A hindrance is reported for this long. After a longer time without writes, the state of the database is unknown.
const HINDRANCE_KNOWN: Duration = Duration::from_secs(15);

impl Counters {
    /// Records that the database is unavailable, locked, or full.
    pub(super) fn hindered(&self, why: Cow<'static, str>, now: Timestamp) {
        let since = self.commit_blocker().map_or(now, |before| before.since);
        *self.hindered.lock() = Some((Instant::now(), CommitBlocker { since, why }));
    }

    /// Returns the reason why the last group failed, if it did.
    pub(super) fn commit_blocker(&self) -> Option<CommitBlocker> {
        let hindered = self.hindered.lock();
        hindered
            .as_ref()
            .filter(|(at, _)| at.elapsed() < HINDRANCE_KNOWN)
            .map(|(_, commit_blocker)| commit_blocker.clone())
    }

    pub(super) fn committed(&self, units: usize, took: Duration) {
        *self.hindered.lock() = None;
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.units.fetch_add(units as u64, Ordering::Relaxed);
        self.group_units_max.fetch_max(units, Ordering::Relaxed);
        self.commit_time_us.fetch_add(took_us, Ordering::Relaxed);
        self.commit_time_us_max.fetch_max(took_us, Ordering::Relaxed);
    }

    /// Returns the current values. The caller adds the lengths of the queues.
    pub(super) fn read(&self) -> JournalStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalStats {
            groups: of(&self.groups),
            units: of(&self.units),
            group_units_max: self.group_units_max.load(Ordering::Relaxed),
            commit_time_us: of(&self.commit_time_us),
            commit_time_us_max: of(&self.commit_time_us_max),
            conflicts: of(&self.conflicts),
            refused: of(&self.refused),
            failed: of(&self.failed),
            retries: of(&self.retries),
            panics: of(&self.panics),
            transitions_queued: 0,
            initiations_queued: 0,
        }
    }
}
