//! Metrics of the journal: names with units and help texts.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

/// Writes of a group.
pub const GROUP_UNITS: &str = "payferry_journal_group_units";
/// Duration of a group's commit.
pub const COMMIT_SECONDS: &str = "payferry_journal_commit_seconds";
const QUEUED: &str = "payferry_journal_queued_units";
const CONFLICTS: &str = "payferry_journal_conflicts_total";
const REFUSED: &str = "payferry_journal_refused_total";
const FAILED: &str = "payferry_journal_failed_total";
const RETRIES: &str = "payferry_journal_retries_total";
const HINDERED: &str = "payferry_journal_hindered";

fn describe() {
    describe_histogram!(GROUP_UNITS, "Writes in one commit.");
    describe_histogram!(COMMIT_SECONDS, Unit::Seconds, "Time from BEGIN to the end of COMMIT.");
    describe_gauge!(QUEUED, "Writes that wait for a commit, by queue.");
    describe_counter!(CONFLICTS, "Writes that failed a precondition: another write changed the row, or used the key.");
    describe_counter!(REFUSED, "Writes that the database rejected as invalid.");
    describe_counter!(FAILED, "Writes that were not committed, or may not have been, except failed preconditions.");
    describe_counter!(RETRIES, "Retries of groups, because of another writer or an unavailable database.");
    describe_gauge!(HINDERED, "1 while the last group could not be committed.");
}

/// Metric handles of the journal, looked up once.
pub(super) struct JournalMetrics {
    group_units: Histogram,
    commit_seconds: Histogram,
    transitions_queued: Gauge,
    initiations_queued: Gauge,
    pub(super) conflicts: Counter,
    pub(super) refused: Counter,
    pub(super) failed: Counter,
    pub(super) retries: Counter,
    hindered: Gauge,
}

impl JournalMetrics {
    pub(super) fn new() -> Self {
        describe();
        Self {
            group_units: histogram!(GROUP_UNITS),
            commit_seconds: histogram!(COMMIT_SECONDS),
            transitions_queued: gauge!(QUEUED, "queue" => "transitions"),
            initiations_queued: gauge!(QUEUED, "queue" => "initiations"),
            conflicts: counter!(CONFLICTS),
            refused: counter!(REFUSED),
            failed: counter!(FAILED),
            retries: counter!(RETRIES),
            hindered: gauge!(HINDERED),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "groups are small")]
    pub(super) fn committed(&self, units: usize, took: Duration) {
        self.group_units.record(units as f64);
        self.commit_seconds.record(took.as_secs_f64());
    }

    #[allow(clippy::cast_precision_loss, reason = "queues are bounded")]
    pub(super) fn refresh(&self, transitions: usize, initiations: usize, is_hindered: bool) {
        self.transitions_queued.set(transitions as f64);
        self.initiations_queued.set(initiations as f64);
        self.hindered.set(f64::from(u8::from(is_hindered)));
    }
}
