//! Metrics of screening.

use payferry_domain::payment::Decision;
use strum::VariantNames;

use super::sanctions_file::SanctionsFileError;

payferry_runtime::metrics! {
    Gauge IN_FLIGHT = "payferry_screening_in_flight_requests", "Requests to the KYT provider in progress.";
    Gauge WAITING = "payferry_screening_waiting_transfers",
        "Transfers without a final verdict: requested, to be requested again, or in review.";
    Histogram(Seconds) SECONDS = "payferry_screening_request_seconds", "Time of a request to the KYT provider.";
    Counter VERDICTS = "payferry_screening_verdicts_total", "Answers of the KYT provider, by decision.";
    Counter ERRORS = "payferry_screening_errors_total", "Failed requests to the KYT provider; each is repeated.";
    Counter OVERDUE = "payferry_review_overdue_total",
        "Repeated screenings of a transfer whose review has exceeded the limit.";
    Counter FILE_ERRORS = "payferry_sanctions_file_errors_total", "Failures to load the sanctions file, by reason.";
}

/// Registers the help texts, and exports every metric.
pub(super) fn register() {
    describe();
    for metric in [IN_FLIGHT, WAITING, SECONDS, ERRORS, OVERDUE] {
        metric.register(&[]);
    }
    for decision in Decision::ALL {
        VERDICTS.register(&[("decision", decision.as_str())]);
    }
    for reason in SanctionsFileError::VARIANTS {
        FILE_ERRORS.register(&[("reason", reason)]);
    }
}
