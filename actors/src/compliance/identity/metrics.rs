//! Metrics of the compliance service: every name with its unit and help text.

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use payferry_runtime::observe::Counters;

use super::queue::Backlog;

const IN_FLIGHT: &str = "payferry_identity_in_flight_checks";
const QUEUED: &str = "payferry_identity_queued_checks";
const OPEN: &str = "payferry_identity_open_checks";
const OVERDUE: &str = "payferry_identity_overdue_checks";
const SECONDS: &str = "payferry_identity_request_seconds";
const ERRORS: &str = "payferry_identity_errors_total";
const VERDICTS: &str = "payferry_identity_verdicts_total";
const CALLBACKS: &str = "payferry_identity_callbacks_total";

/// Outcomes of a callback.
const OUTCOMES: [&str; 5] = ["applied", "without_effect", "not_applied", "forged", "unreadable"];

fn describe() {
    describe_gauge!(IN_FLIGHT, "Checks in progress: requests to the identity provider.");
    describe_gauge!(QUEUED, "Customer checks that no identity provider has received yet.");
    describe_gauge!(OPEN, "Customer checks that the identity provider or the person has not finished.");
    describe_gauge!(OVERDUE, "Checks that have waited for the identity provider longer than the limit.");
    describe_histogram!(SECONDS, Unit::Seconds, "Time of a request to the identity provider, including failures.");
    describe_counter!(ERRORS, "Failures of the identity provider; each request is retried later.");
    describe_counter!(VERDICTS, "Finished checks, by verdict: approved, rejected, lapsed.");
    describe_counter!(CALLBACKS, "Callbacks of identity providers, by outcome.");
}

/// Metric handles, created once.
pub(super) struct ComplianceMetrics {
    in_flight: Gauge,
    queued: Gauge,
    open: Gauge,
    overdue: Gauge,
    pub(super) seconds: Histogram,
    pub(super) errors: Counter,
    pub(super) verdicts: Counters,
    pub(super) callbacks: Counters,
}

impl ComplianceMetrics {
    pub(super) fn new() -> Self {
        describe();
        Self {
            in_flight: gauge!(IN_FLIGHT),
            queued: gauge!(QUEUED),
            open: gauge!(OPEN),
            overdue: gauge!(OVERDUE),
            seconds: histogram!(SECONDS),
            errors: counter!(ERRORS),
            verdicts: Counters::closed(VERDICTS, "verdict", ["approved", "rejected", "lapsed"]),
            callbacks: Counters::closed(CALLBACKS, "outcome", OUTCOMES),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn show_in_flight(&self, in_flight: usize) {
        self.in_flight.set(in_flight as f64);
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn show(&self, backlog: Backlog) {
        self.queued.set(backlog.queued as f64);
        self.open.set(backlog.open as f64);
        self.overdue.set(backlog.overdue as f64);
    }
}
