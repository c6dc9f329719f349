//! Statistics and metrics of the journal: names with units and help texts.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, counter, gauge};
use parking_lot::Mutex;
use payferry_domain::Timestamp;
use utoipa::ToSchema;

payferry_runtime::metrics! {
    Histogram UNITS = "payferry_journal_group_units", "Writes in one commit.";
    Histogram(Seconds) COMMIT = "payferry_journal_commit_seconds", "Time from BEGIN to the end of COMMIT.";
    Gauge QUEUED = "payferry_journal_queued_units", "Writes that wait for a commit, by queue.";
    Counter CONFLICTS = "payferry_journal_conflicts_total",
        "Writes that failed a precondition: another write changed the row, or used the key.";
    Counter FENCE_LOST = "payferry_fence_lost_total",
        "Writes of chains that were refused because another node holds the lease.", exported;
    Counter REFUSED = "payferry_journal_refused_total", "Writes that the database rejected as invalid.";
    Counter FAILED = "payferry_journal_failed_total",
        "Writes that were not committed, or may not have been, except failed preconditions.";
    Counter RETRIES = "payferry_journal_retries_total",
        "Retries of groups, because of another writer or an unavailable database.";
    Gauge HINDERED = "payferry_journal_hindered", "1 while the last group could not be committed.";
}

/// Writes of a group.
pub const GROUP_UNITS: &str = UNITS.name;
/// Duration of a group's commit.
pub const COMMIT_SECONDS: &str = COMMIT.name;

/// Statistics of the journal since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, ToSchema)]
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

/// A number that the statistics and a metric report.
pub(super) struct Count {
    total: AtomicU64,
    metric: Counter,
}

impl Count {
    const fn new(metric: Counter) -> Self {
        Self { total: AtomicU64::new(0), metric }
    }

    pub(super) fn add(&self, count: usize) {
        self.total.fetch_add(count as u64, Ordering::Relaxed);
        self.metric.increment(count as u64);
    }
}

pub(super) struct Counters {
    groups: AtomicU64,
    units: AtomicU64,
    group_units_max: AtomicUsize,
    commit_time_us: AtomicU64,
    commit_time_us_max: AtomicU64,
    pub(super) conflicts: Count,
    pub(super) refused: Count,
    pub(super) failed: Count,
    pub(super) retries: Count,
    pub(super) panics: AtomicU64,
    /// Reason why the last group failed; `None` after a successful commit.
    hindered: Mutex<Option<(Instant, CommitBlocker)>>,
    group_units: Histogram,
    commit_seconds: Histogram,
    transitions_queued: Gauge,
    initiations_queued: Gauge,
    is_hindered: Gauge,
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
    /// Describes the metrics and looks up their handles.
    pub(super) fn new() -> Self {
        describe();
        crate::violations::describe();
        Self {
            groups: AtomicU64::default(),
            units: AtomicU64::default(),
            group_units_max: AtomicUsize::default(),
            commit_time_us: AtomicU64::default(),
            commit_time_us_max: AtomicU64::default(),
            conflicts: Count::new(counter!(CONFLICTS.name)),
            refused: Count::new(counter!(REFUSED.name)),
            failed: Count::new(counter!(FAILED.name)),
            retries: Count::new(counter!(RETRIES.name)),
            panics: AtomicU64::default(),
            hindered: Mutex::default(),
            group_units: UNITS.histogram(&[]),
            commit_seconds: COMMIT.histogram(&[]),
            transitions_queued: gauge!(QUEUED.name, "queue" => "transitions"),
            initiations_queued: gauge!(QUEUED.name, "queue" => "initiations"),
            is_hindered: gauge!(HINDERED.name),
        }
    }

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

    #[allow(clippy::cast_precision_loss, reason = "groups are small")]
    pub(super) fn committed(&self, units: usize, took: Duration) {
        *self.hindered.lock() = None;
        self.group_units.record(units as f64);
        self.commit_seconds.record(took.as_secs_f64());
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.units.fetch_add(units as u64, Ordering::Relaxed);
        self.group_units_max.fetch_max(units, Ordering::Relaxed);
        self.commit_time_us.fetch_add(took_us, Ordering::Relaxed);
        self.commit_time_us_max.fetch_max(took_us, Ordering::Relaxed);
    }

    /// Updates the metrics that are not counted as events occur.
    #[allow(clippy::cast_precision_loss, reason = "queues are bounded")]
    pub(super) fn refresh(&self, transitions: usize, initiations: usize) {
        self.transitions_queued.set(transitions as f64);
        self.initiations_queued.set(initiations as f64);
        self.is_hindered.set(f64::from(u8::from(self.commit_blocker().is_some())));
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
            conflicts: of(&self.conflicts.total),
            refused: of(&self.refused.total),
            failed: of(&self.failed.total),
            retries: of(&self.retries.total),
            panics: of(&self.panics),
            transitions_queued: 0,
            initiations_queued: 0,
        }
    }
}
