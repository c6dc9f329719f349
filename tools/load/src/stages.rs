//! How long the stages of a payment take: HDR histograms, exact to three digits, of which percentiles are read.
//!
//! Every stage is counted twice: from the payment's intended beginning, so that nothing that it waited for is hidden, and
//! from the stage before it, which says where the time went.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Digits that a recorded value keeps.
const SIGNIFICANT_DIGITS: u8 = 3;
/// The longest time that is told from longer ones, in microseconds: an hour.
const HIGHEST_US: u64 = 3_600_000_000;

/// Latencies of one kind.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(1, HIGHEST_US, SIGNIFICANT_DIGITS);
        // The bounds are constants that it takes.
        Self { histogram: bounds.unwrap_or_else(|_| unreachable!("constant bounds")) }
    }
}

impl Latencies {
    /// Counts one; less than a microsecond is one, more than an hour is an hour.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(HIGHEST_US).max(1);
        self.histogram.saturating_record(us);
    }

    /// What was counted so far; it begins anew.
    pub fn take(&mut self) -> Self {
        let taken = self.clone();
        self.histogram.reset();
        taken
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that so many percent (0 to 100) do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        millis(self.histogram.value_at_percentile(percent))
    }

    /// The figures of a report.
    pub fn figures(&self) -> Figures {
        if self.histogram.is_empty() {
            return Figures::default();
        }
        Figures {
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

/// To microseconds: what is beyond is not measured.
fn round(ms: f64) -> f64 {
    (ms * 1_000.0).round() / 1_000.0
}

/// What a histogram says, in milliseconds. All zero if nothing was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// How many were counted.
    pub count: u64,
    /// The least.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// Half of them take no longer.
    pub p50_ms: f64,
    /// Nine of ten.
    pub p90_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1,000.
    pub p99_9_ms: f64,
    /// The most.
    pub max_ms: f64,
}

/// What a payment goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The request had its place among the connections: how far the load tester itself is behind.
    Begun,
    /// The service answered 201.
    Accepted,
    /// The chain's node took the payer's transfer.
    Sent,
    /// The transfer is in a block.
    Mined,
    /// The service shows the transfer (of a sample).
    Seen,
    /// The payment was confirmed.
    Confirmed,
    /// The payment was settled on-chain, and that is final.
    Settled,
    /// Each webhook came in, from what it tells on.
    Webhook,
    /// The last webhook that is expected of a payment came in.
    Complete,
}

impl Stage {
    /// All, in the order in which a payment meets them.
    pub const ALL: [Self; 9] = [
        Self::Begun,
        Self::Accepted,
        Self::Sent,
        Self::Mined,
        Self::Seen,
        Self::Confirmed,
        Self::Settled,
        Self::Webhook,
        Self::Complete,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Accepted => "accepted",
            Self::Sent => "sent",
            Self::Mined => "mined",
            Self::Seen => "seen",
            Self::Confirmed => "confirmed",
            Self::Settled => "settled",
            Self::Webhook => "webhook",
            Self::Complete => "complete",
        }
    }

    /// What its step begins with.
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

/// The latencies of all stages. Shared by reference.
#[derive(Debug, Default)]
pub struct Stages {
    counted: [Mutex<Pair>; Stage::ALL.len()],
}

#[derive(Debug, Default, Clone)]
struct Pair {
    total: Latencies,
    step: Latencies,
    timed_out: u64,
}

/// One stage in a report.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StageFigures {
    /// Which.
    pub stage: Stage,
    /// From the payment's intended beginning.
    pub from_intended: Figures,
    /// What the step begins with.
    pub step_from: &'static str,
    /// From there.
    pub step: Figures,
    /// How many of them waited in vain: what they waited for never came, so that their times are lower bounds.
    pub timed_out: u64,
}

impl Stages {
    /// Counts that a payment came to this stage, so long after its intended beginning and after the stage before.
    pub fn record(&self, stage: Stage, from_intended: Duration, step: Duration) {
        let mut pair = self.counted[stage as usize].lock();
        pair.total.record(from_intended);
        pair.step.record(step);
    }

    /// Counts that a payment waited so long for this stage, and in vain: it is a lower bound. Figures of those alone whose
    /// waiting ended well would look best where most is amiss. The step is none if it is not known when it began.
    pub fn record_timed_out(&self, stage: Stage, from_intended: Duration, step: Option<Duration>) {
        let mut pair = self.counted[stage as usize].lock();
        pair.total.record(from_intended);
        if let Some(step) = step {
            pair.step.record(step);
        }
        pair.timed_out += 1;
    }

    /// Counts only the whole: when the step began is not known.
    pub fn record_total(&self, stage: Stage, from_intended: Duration) {
        self.counted[stage as usize].lock().total.record(from_intended);
    }

    /// Counts only the step: of a payment that is long on its way by intent.
    pub fn record_step(&self, stage: Stage, step: Duration) {
        self.counted[stage as usize].lock().step.record(step);
    }

    /// The figures of all stages that any payment came to.
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

    /// The latencies of one stage: from the intended beginning, and of its step.
    pub fn latencies(&self, stage: Stage) -> (Latencies, Latencies) {
        let pair = self.counted[stage as usize].lock().clone();
        (pair.total, pair.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_digits() {
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
    fn only_stages_that_were_reached_are_shown() {
        let stages = Stages::default();
        assert!(stages.figures().is_empty());
        assert_eq!(Latencies::default().figures(), Figures::default());
        stages.record(Stage::Settled, Duration::from_secs(3), Duration::from_secs(1));
        let figures = stages.figures();
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].stage, figures[0].step_from), (Stage::Settled, "confirmed"));
        assert!(figures[0].from_intended.p50_ms > figures[0].step.p50_ms);
    }

    #[test]
    fn who_waits_in_vain_is_counted_with_his_wait_and_told_apart() {
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
    fn stages_are_in_the_order_of_their_numbers() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
        }
    }
}
