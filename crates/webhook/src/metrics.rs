//! Webhook metrics.

use std::time::Duration;

use payferry_domain::Timestamp;
use payferry_entities::DeliveryStatus::{self, Delivered, Exhausted, Failed, Queued};

use super::queue::Backlog;

payferry_runtime::metrics! {
    Counter ATTEMPTS = "payferry_webhook_attempts_total",
        "Attempts at deliveries, by the delivery's state afterwards.",
        exported by "outcome" in [Delivered, Failed, Exhausted].map(DeliveryStatus::as_str);
    Histogram(Seconds) ATTEMPT_SECONDS = "payferry_webhook_attempt_seconds",
        "Time from the start of an attempt to the receiver's answer.", exported;
    Gauge BACKLOG = "payferry_webhook_backlog_deliveries",
        "Deliveries that wait for their first attempt (queued) or for a retry (failed) of enabled endpoints; \
         at most 10,000 are counted of each endpoint.", exported by "status" in [Queued, Failed].map(DeliveryStatus::as_str);
    Gauge(Seconds) OLDEST = "payferry_webhook_oldest_due_seconds",
        "Time since the delivery that has been due for longest became due.", exported;
    Gauge UNDER_WAY = "payferry_webhook_attempts_under_way", "Attempts in progress.", exported;
    Gauge BREAKERS_OPEN = "payferry_webhook_breakers_open",
        "Endpoints that receive only probes because they kept failing.", exported;
}

/// Counts an attempt; the delivery is now `delivered`, `failed` or `exhausted`.
pub(super) fn attempted(outcome: &'static str, took: Duration) {
    ATTEMPTS.add(&[("outcome", outcome)], 1);
    ATTEMPT_SECONDS.record(&[], took.as_secs_f64());
}

#[allow(clippy::cast_precision_loss, reason = "counts and ages are far below 2^52")]
pub(super) fn show_backlog(backlog: Backlog, now: Timestamp) {
    BACKLOG.set(&[("status", Queued.as_str())], backlog.queued as f64);
    BACKLOG.set(&[("status", Failed.as_str())], backlog.failed as f64);
    let late_ms = backlog.due_first_at().map_or(0, |at| now.as_millis().saturating_sub(at).max(0));
    OLDEST.set(&[], late_ms as f64 / 1_000.0);
}
