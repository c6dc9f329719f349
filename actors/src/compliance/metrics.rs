//! Metrics of screening: every name with its unit and help text.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use payferry_domain::payment::Decision;
use payferry_runtime::observe::Counters;

use super::sanctions_file::SanctionsFileError;

const IN_FLIGHT: &str = "payferry_screening_in_flight_requests";
const WAITING: &str = "payferry_screening_waiting_transfers";
const SECONDS: &str = "payferry_screening_request_seconds";
const VERDICTS: &str = "payferry_screening_verdicts_total";
const ERRORS: &str = "payferry_screening_errors_total";
const OVERDUE: &str = "payferry_review_overdue_total";
const FILE_ERRORS: &str = "payferry_sanctions_file_errors_total";

fn describe() {
    describe_gauge!(IN_FLIGHT, "Requests to the KYT provider in progress.");
    describe_gauge!(WAITING, "Transfers without a final verdict: requested, to be requested again, or in review.");
    describe_histogram!(SECONDS, Unit::Seconds, "Time of a request to the KYT provider.");
    describe_counter!(VERDICTS, "Answers of the KYT provider, by decision.");
    describe_counter!(ERRORS, "Failed requests to the KYT provider; each is repeated.");
    describe_counter!(OVERDUE, "Repeated screenings of a transfer whose review has exceeded the limit.");
    describe_counter!(FILE_ERRORS, "Failures to load the sanctions file, by reason.");
}

/// Metric handles, created once.
pub(super) struct ScreeningMetrics {
    in_flight: Gauge,
    waiting: Gauge,
    seconds: Histogram,
    verdicts: Counters,
    pub(super) errors: Counter,
    pub(super) overdue: Counter,
}

impl ScreeningMetrics {
    pub(super) fn new() -> Self {
        describe();
        for reason in SanctionsFileError::NAMES {
            counter!(FILE_ERRORS, "reason" => reason).increment(0);
        }
        Self {
            in_flight: gauge!(IN_FLIGHT),
            waiting: gauge!(WAITING),
            seconds: histogram!(SECONDS),
            verdicts: Counters::closed(VERDICTS, "decision", Decision::ALL.iter().map(|decision| decision.as_str())),
            errors: counter!(ERRORS),
            overdue: counter!(OVERDUE),
        }
    }

    pub(super) fn answered(&self, decision: Decision, took: Duration) {
        self.verdicts.increment(decision.as_str());
        self.seconds.record(took.as_secs_f64());
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn show(&self, in_flight: usize, waiting: usize) {
        self.in_flight.set(in_flight as f64);
        self.waiting.set(waiting as f64);
    }
}

/// Counts a failure to load the sanctions file.
pub(super) fn file_error(reason: &'static str) {
    counter!(FILE_ERRORS, "reason" => reason).increment(1);
}
