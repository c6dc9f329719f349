//! Metrics of screening.

use payferry_domain::payment::Decision;
use strum::VariantNames;

use super::sanctions_file::SanctionsFileError;

payferry_runtime::metrics! {
    Gauge IN_FLIGHT = "payferry_screening_in_flight_requests", "Requests to the KYT provider in progress.", exported;
    Gauge WAITING = "payferry_screening_waiting_transfers",
        "Transfers without a final verdict: requested, to be requested again, or in review.", exported;
    Histogram(Seconds) SECONDS = "payferry_screening_request_seconds", "Time of a request to the KYT provider.",
        exported;
    Counter VERDICTS = "payferry_screening_verdicts_total", "Answers of the KYT provider, by decision.",
        exported by "decision" in Decision::ALL.map(Decision::as_str);
    Counter ERRORS = "payferry_screening_errors_total", "Failed requests to the KYT provider; each is repeated.",
        exported;
    Counter OVERDUE = "payferry_review_overdue_total",
        "Repeated screenings of a transfer whose review has exceeded the limit.", exported;
    Counter FILE_ERRORS = "payferry_sanctions_file_errors_total", "Failures to load the sanctions file, by reason.",
        exported by "reason" in SanctionsFileError::VARIANTS.iter().copied();
}
