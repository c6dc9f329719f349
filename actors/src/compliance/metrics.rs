//! What screening counts: every name with its unit and meaning in one place.

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
    describe_gauge!(IN_FLIGHT, "Requests to the KYT provider under way.");
    describe_gauge!(WAITING, "Transfers that wait for a verdict: asked for, to be asked again, or in review.");
    describe_histogram!(SECONDS, Unit::Seconds, "Time the KYT provider took for an answer.");
    describe_counter!(VERDICTS, "Answers of the KYT provider, by decision.");
    describe_counter!(ERRORS, "Requests that the KYT provider failed; each is made again.");
    describe_counter!(OVERDUE, "Looks at a transfer that was in review for longer than a person should need.");
    describe_counter!(FILE_ERRORS, "Times the sanctions file could not be taken over, by reason.");
}

/// The handles, looked up once.
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

/// The sanctions file could not be taken over.
pub(super) fn file_error(reason: &'static str) {
    counter!(FILE_ERRORS, "reason" => reason).increment(1);
}
