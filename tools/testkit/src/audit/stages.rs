//! Latencies of the stages of a payment: HDR histograms with three significant digits.
//!
//! Each stage has two latencies: from the scheduled start of the payment, which includes all waiting, and from the
//! stage before, which shows where the time was spent.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

/// Significant digits of a recorded value.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Largest recorded value, in microseconds: an hour.
const HIGHEST_US: u64 = 3_600_000_000;

/// Latencies of one kind.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(1, HIGHEST_US, SIGNIFICANT_DIGITS);
        // The bounds are constants that the constructor accepts.
        Self { histogram: bounds.unwrap_or_else(|_| unreachable!("constant bounds")) }
    }
}

impl Latencies {
    /// Records a latency, at least a microsecond and at most an hour.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(HIGHEST_US).max(1);
        self.histogram.saturating_record(us);
    }

    /// Returns the figures of waits, from their begin to their end. Those that have not ended count until `now`, as lower bounds.
    /// Also returns the number of these.
    pub fn of_waits(waits: impl Iterator<Item = (Instant, Option<Instant>)>, now: Instant) -> (LatencyFigures, u64) {
        let (mut latencies, mut timed_out) = (Self::default(), 0);
        for (begin, end) in waits {
            timed_out += u64::from(end.is_none());
            // A clock that is behind may put an end before its begin.
            latencies.record(end.unwrap_or(now).saturating_duration_since(begin));
        }
        (latencies.figures(), timed_out)
    }

    /// Returns the latencies so far and resets them.
    pub fn take(&mut self) -> Self {
        let taken = self.clone();
        self.histogram.reset();
        taken
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns a percentile (0 to 100), in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        millis(self.histogram.value_at_percentile(percent))
    }

    /// Returns each recorded latency, rounded to three digits, with its count.
    pub fn recorded(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.histogram.iter_recorded().map(|of| (Duration::from_micros(of.value_iterated_to()), of.count_at_value()))
    }

    /// Returns the largest latency; zero if there is none.
    fn longest(&self) -> Duration {
        Duration::from_micros(self.histogram.max())
    }

    /// Returns the figures for the report.
    pub fn figures(&self) -> LatencyFigures {
        if self.histogram.is_empty() {
            return LatencyFigures::default();
        }
        LatencyFigures {
            count: self.histogram.len(),
            min_ms: millis(self.histogram.min()),
            mean_ms: round(self.histogram.mean() / 1_000.0),
            p50_ms: self.percentile_ms(50.0),
            p90_ms: self.percentile_ms(90.0),
            p99_ms: self.percentile_ms(99.0),
            p99_9_ms: self.percentile_ms(99.9),
            max_ms: millis(self.histogram.max()),
        }
    }
}

fn millis(us: u64) -> f64 {
    round(Duration::from_micros(us).as_secs_f64() * 1_000.0)
}

/// Rounds to microseconds, the resolution of the measurement.
fn round(ms: f64) -> f64 {
    (ms * 1_000.0).round() / 1_000.0
}

/// Figures of a histogram in milliseconds. All zero if it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Number of latencies.
    pub count: u64,
    /// Minimum.
    pub min_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p99_9_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

crate::names! {
    /// Stages of a payment, in order.
    Stage, "a stage" {
        /// The request got a connection: shows how late the load tester itself is.
        Begun = "begun",
        /// The service responded with 201.
        Accepted = "accepted",
        /// The chain's node accepted the payer's transfer, or the service the authorization.
        Sent = "sent",
        /// The transfer, or the collection of the authorization, is in a block.
        Mined = "mined",
        /// The service shows the transfer (of a sampled payment).
        Seen = "seen",
        /// The payment is confirmed.
        Confirmed = "confirmed",
        /// The payment is settled on-chain, and the settlement is final.
        Settled = "settled",
        /// A webhook arrived, measured from its event.
        Webhook = "webhook",
        /// The last expected webhook of a payment arrived.
        Complete = "complete",
    }
}

impl Stage {
    /// Returns the name of the beginning of the step.
    pub const fn step_from(self) -> &'static str {
        match self {
            Self::Begun | Self::Complete => "intended",
            Self::Accepted => "begun",
            Self::Sent => "accepted",
            Self::Mined => "sent",
            Self::Seen | Self::Confirmed => "mined",
            Self::Settled => "confirmed",
            Self::Webhook => "its event",
        }
    }
}

/// Latencies of all stages. Shared by reference.
#[derive(Debug, Default)]
pub struct Stages {
    counted: [Mutex<Pair>; Stage::ALL.len()],
}

#[derive(Debug, Default, Clone)]
struct Pair {
    total: Latencies,
    /// Those of `total` since the last [`Stages::take_latest`].
    latest: Latencies,
    step: Latencies,
    timed_out: u64,
}

/// One stage in a report.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StageFigures {
    /// Stage.
    pub stage: Stage,
    /// Latencies from the scheduled start.
    pub from_intended: LatencyFigures,
    /// Beginning of the step.
    pub step_from: &'static str,
    /// Latencies of the step.
    pub step: LatencyFigures,
    /// Number of payments that timed out at this stage. Their waits count, as lower bounds.
    #[serde(rename = "in_vain")]
    pub timed_out: u64,
}

impl Stages {
    /// Records that a payment reached this stage, with the latencies from its scheduled start and from the stage
    /// before.
    pub fn record(&self, stage: Stage, from_intended: Duration, step: Duration) {
        let mut pair = self.counted[stage as usize].lock();
        pair.total.record(from_intended);
        pair.latest.record(from_intended);
        pair.step.record(step);
    }

    /// Records that a payment waited this long for a stage and timed out. The wait is a lower bound. Without it, the
    /// figures would be best when most payments time out. It counts as at least the longest latency of the stage, so
    /// that the wait of a run that ends early improves no percentile. `step` is `None` if the beginning of the step is
    /// unknown.
    pub fn record_timed_out(&self, stage: Stage, from_intended: Duration, step: Option<Duration>) {
        let mut pair = self.counted[stage as usize].lock();
        let from_intended = from_intended.max(pair.total.longest());
        let step = step.map(|step| step.max(pair.step.longest()));
        pair.total.record(from_intended);
        pair.latest.record(from_intended);
        if let Some(step) = step {
            pair.step.record(step);
        }
        pair.timed_out += 1;
    }

    /// Records only the latency from the scheduled start: the beginning of the step is unknown.
    pub fn record_total(&self, stage: Stage, from_intended: Duration) {
        self.counted[stage as usize].lock().total.record(from_intended);
    }

    /// Records only the step: the payment is meant to take long.
    pub fn record_step(&self, stage: Stage, step: Duration) {
        self.counted[stage as usize].lock().step.record(step);
    }

    /// Returns the figures of all stages that a payment reached.
    pub fn figures(&self) -> Vec<StageFigures> {
        let figures = |stage: Stage| {
            let pair = self.counted[stage as usize].lock().clone();
            StageFigures {
                stage,
                from_intended: pair.total.figures(),
                step_from: stage.step_from(),
                step: pair.step.figures(),
                timed_out: pair.timed_out,
            }
        };
        let is_reached = |figures: &StageFigures| figures.from_intended.count > 0 || figures.step.count > 0;
        Stage::ALL.into_iter().map(figures).filter(is_reached).collect()
    }

    /// Returns the latencies of one stage from the scheduled start.
    pub fn latencies(&self, stage: Stage) -> Latencies {
        self.counted[stage as usize].lock().total.clone()
    }

    /// Returns those since the last call.
    pub fn take_latest(&self, stage: Stage) -> Latencies {
        self.counted[stage as usize].lock().latest.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_three_exact_digits() {
        let mut latencies = Latencies::default();
        for ms in 1..=1_000 {
            latencies.record(Duration::from_millis(ms));
        }
        let figures = latencies.figures();
        assert_eq!(figures.count, 1_000);
        for (found, wanted) in
            [(figures.p50_ms, 500.0), (figures.p90_ms, 900.0), (figures.p99_ms, 990.0), (figures.max_ms, 1_000.0)]
        {
            assert!((found - wanted).abs() / wanted < 0.002, "{found} for {wanted}");
        }
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_hours(9));
        assert!(latencies.figures().max_ms >= 3_600_000.0);
        assert_eq!(latencies.count(), 1_002);
    }

    #[test]
    fn shows_only_stages_that_were_reached() {
        let stages = Stages::default();
        assert!(stages.figures().is_empty());
        assert_eq!(Latencies::default().figures(), LatencyFigures::default());
        stages.record(Stage::Settled, Duration::from_secs(3), Duration::from_secs(1));
        let figures = stages.figures();
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].stage, figures[0].step_from), (Stage::Settled, "confirmed"));
        assert!(figures[0].from_intended.p50_ms > figures[0].step.p50_ms);
    }

    #[test]
    fn counts_timeouts_with_their_wait() {
        let stages = Stages::default();
        stages.record(Stage::Accepted, Duration::from_millis(5), Duration::from_millis(4));
        stages.record_timed_out(Stage::Accepted, Duration::from_secs(11), Some(Duration::from_secs(10)));
        stages.record_total(Stage::Confirmed, Duration::from_secs(3));
        stages.record_timed_out(Stage::Webhook, Duration::from_secs(9), None);
        let figures = stages.figures();
        let [accepted, confirmed, webhook] = figures.as_slice() else { panic!("{figures:?}") };
        assert_eq!((accepted.from_intended.count, accepted.step.count, accepted.timed_out), (2, 2, 1));
        assert!(accepted.from_intended.max_ms >= 11_000.0 && accepted.step.max_ms >= 10_000.0, "{accepted:?}");
        assert_eq!((confirmed.from_intended.count, confirmed.step.count, confirmed.timed_out), (1, 0, 0));
        assert_eq!((webhook.from_intended.count, webhook.step.count, webhook.timed_out), (1, 0, 1));
    }

    #[test]
    fn a_short_wait_improves_no_percentile() {
        let stages = Stages::default();
        stages.record(Stage::Complete, Duration::from_secs(3), Duration::from_secs(2));
        stages.record_timed_out(Stage::Complete, Duration::from_millis(1), Some(Duration::from_millis(1)));
        let figures = stages.figures()[0];
        assert!(figures.from_intended.min_ms >= 2_990.0 && figures.step.min_ms >= 1_990.0, "{figures:?}");
    }

    #[test]
    fn stages_are_in_the_order_of_their_numbers() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
        }
    }
}
