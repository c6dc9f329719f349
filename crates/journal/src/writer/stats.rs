//! What the journal counts of itself.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_domain::Timestamp;

/// What the journal did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JournalStats {
    /// Groups committed.
    pub groups: u64,
    /// Units committed.
    pub units: u64,
    /// Units of the largest group.
    pub group_units_max: usize,
    /// Time from `BEGIN` to the end of `COMMIT`, all groups together, microseconds.
    pub commit_time_us: u64,
    /// The longest of them, microseconds.
    pub commit_time_us_max: u64,
    /// Units that lost a gate.
    pub conflicts: u64,
    /// Units that the database refused.
    pub refused: u64,
    /// Units that were not committed, or not known to be, for any other reason than a gate (refused ones included).
    pub failed: u64,
    /// Times a group was tried again, for contention or because the database was away.
    pub retries: u64,
    /// Times the task panicked and was started again.
    pub panics: u64,
    /// Units in the queue of transitions now.
    pub transitions_queued: usize,
    /// Units in the queue of initiations now.
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
    /// What last kept a group from being written; `None` since one was written.
    hindered: Mutex<Option<(Instant, Hindrance)>>,
}

/// What keeps groups from being written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hindrance {
    /// Since when, by the wall clock.
    pub since: Timestamp,
    /// What is the matter with the database, in words that name nothing that was to be written.
    pub why: Cow<'static, str>,
}

/// A journal that has had nothing to write for so long does not know whether it could.
const HINDRANCE_KNOWN: Duration = Duration::from_secs(15);

impl Counters {
    /// The database is away, held or full.
    pub(super) fn hindered(&self, why: Cow<'static, str>, now: Timestamp) {
        let since = self.hindrance().map_or(now, |before| before.since);
        *self.hindered.lock() = Some((Instant::now(), Hindrance { since, why }));
    }

    /// What kept the last group from being written, if anything did.
    pub(super) fn hindrance(&self) -> Option<Hindrance> {
        let hindered = self.hindered.lock();
        hindered.as_ref().filter(|(at, _)| at.elapsed() < HINDRANCE_KNOWN).map(|(_, hindrance)| hindrance.clone())
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

    /// As they are now; the queues' lengths are the caller's.
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
