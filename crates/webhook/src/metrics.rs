//! Webhook metrics: every name with its unit and help text.

use std::time::Duration;

use metrics::{Gauge, Histogram, Unit, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use payferry_domain::Timestamp;
use payferry_runtime::observe::Counters;

use super::queue::Backlog;

const ATTEMPTS: &str = "payferry_webhook_attempts_total";
const ATTEMPT_SECONDS: &str = "payferry_webhook_attempt_seconds";
const BACKLOG: &str = "payferry_webhook_backlog_deliveries";
const OLDEST: &str = "payferry_webhook_oldest_due_seconds";
const UNDER_WAY: &str = "payferry_webhook_attempts_under_way";
const BREAKERS_OPEN: &str = "payferry_webhook_breakers_open";

fn describe() {
    describe_counter!(ATTEMPTS, "Attempts at deliveries, by the delivery's state afterwards.");
    describe_histogram!(ATTEMPT_SECONDS, Unit::Seconds, "Time from the start of an attempt to the receiver's answer.");
    describe_gauge!(
        BACKLOG,
        "Deliveries that wait for their first attempt (queued) or for a retry (failed), of PSPs with an endpoint; \
         at most 10,000 are counted of each PSP."
    );
    describe_gauge!(OLDEST, Unit::Seconds, "Time since the delivery that has been due for longest became due.");
    describe_gauge!(UNDER_WAY, "Attempts in progress.");
    describe_gauge!(BREAKERS_OPEN, "Endpoints that receive only probes because they kept failing.");
}

/// Metric handles, created once.
pub(super) struct WebhookMetrics {
    attempts: Counters,
    attempt_seconds: Histogram,
    queued: Gauge,
    failed: Gauge,
    oldest: Gauge,
    under_way: Gauge,
    breakers_open: Gauge,
}

impl WebhookMetrics {
    pub(super) fn new() -> Self {
        describe();
        Self {
            attempts: Counters::closed(ATTEMPTS, "outcome", ["delivered", "failed", "exhausted"]),
            attempt_seconds: histogram!(ATTEMPT_SECONDS),
            queued: gauge!(BACKLOG, "status" => "queued"),
            failed: gauge!(BACKLOG, "status" => "failed"),
            oldest: gauge!(OLDEST),
            under_way: gauge!(UNDER_WAY),
            breakers_open: gauge!(BREAKERS_OPEN),
        }
    }

    /// Counts an attempt; the delivery is now `delivered`, `failed` or `exhausted`.
    pub(super) fn attempted(&self, outcome: &'static str, took: Duration) {
        self.attempts.increment(outcome);
        self.attempt_seconds.record(took.as_secs_f64());
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn show(&self, under_way: usize, breakers_open: usize) {
        self.under_way.set(under_way as f64);
        self.breakers_open.set(breakers_open as f64);
    }

    #[allow(clippy::cast_precision_loss, reason = "counts and ages are far below 2^52")]
    pub(super) fn show_backlog(&self, backlog: Backlog, now: Timestamp) {
        self.queued.set(backlog.queued as f64);
        self.failed.set(backlog.failed as f64);
        let late_ms = backlog.due_first_at.map_or(0, |at| now.as_millis().saturating_sub(at).max(0));
        self.oldest.set(late_ms as f64 / 1_000.0);
    }
}
