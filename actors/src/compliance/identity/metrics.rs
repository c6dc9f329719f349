//! Metrics of the compliance service.

use super::queue::CheckBacklog;

payferry_runtime::metrics! {
    Gauge IN_FLIGHT = "payferry_identity_in_flight_checks",
        "Checks in progress: requests to the identity provider.", exported;
    Gauge QUEUED = "payferry_identity_queued_checks",
        "Customer checks that no identity provider has received yet.", exported;
    Gauge OPEN = "payferry_identity_open_checks",
        "Customer checks that the identity provider or the person has not finished.", exported;
    Gauge OVERDUE = "payferry_identity_overdue_checks",
        "Checks that have waited for the identity provider longer than the limit.", exported;
    Histogram(Seconds) SECONDS = "payferry_identity_request_seconds",
        "Time of a request to the identity provider, including failures.", exported;
    Counter ERRORS = "payferry_identity_errors_total",
        "Failures of the identity provider; each request is retried later.", exported;
    Counter VERDICTS = "payferry_identity_verdicts_total", "Finished checks, by verdict: approved, rejected, lapsed.",
        exported by "verdict" in ["approved", "rejected", "lapsed"];
    Counter CALLBACKS = "payferry_identity_callbacks_total", "Callbacks of identity providers, by outcome.",
        exported by "outcome" in ["applied", "without_effect", "not_applied", "forged", "unreadable"];
}

pub(super) fn show(backlog: CheckBacklog) {
    QUEUED.set_count(&[], backlog.queued);
    OPEN.set_count(&[], backlog.open);
    OVERDUE.set_count(&[], backlog.overdue);
}
