//! How many payments per second the processors can complete, as a pure state machine.
//!
//! Queues show an overload seconds after its cause, because a payment causes most of its work when its transfer is final. The
//! processors show it at once: the time that a payment has cost, and the time that they have for the service, give a rate. It
//! limits the first seconds of an overload. Delays of queues limit the rest ([`super::controller`]): a slow disk or endpoint
//! has no effect on the processors.

use std::time::Duration;

use super::controller::SAMPLE;

/// Samples of an interval in which costs are measured.
pub(super) const INTERVAL_SAMPLES: u32 = 10;
/// Share of the newest interval in the means.
const RECENT_SHARE: f64 = 0.3;
/// Payments per second from which on costs are known: with fewer, the service costs more than its payments.
const KNOWN_RATE_MIN: f64 = 50.0;
/// Share of the newest cost in the known one.
const COST_SHARE: f64 = 0.1;
/// Share of the processors' time that payments can use: some of it passes between two tasks. In a debug build, costs differ
/// more.
const USABLE_SHARE: f64 = if cfg!(debug_assertions) { 3.0 } else { 0.9 };
/// The processors are busy if a smaller share of their time than this is idle: some time always passes between two tasks.
const SPARE_SHARE: f64 = 0.1;
/// Time in which payments above the rate are admitted, in seconds.
const BURST_SECS: f64 = 0.25;

/// Use of the processors and payments in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Interval {
    pub(super) length: Duration,
    /// Processor time of this process.
    pub(super) used: Duration,
    /// Time in which processors had nothing to do.
    pub(super) idle: Duration,
    /// Payments that were made.
    pub(super) made: u64,
    /// Payments that ended.
    pub(super) ended: u64,
}

impl Interval {
    /// True if the processors had no time to spare. `processors`: those that this process may use, which can be fewer than the
    /// machine has.
    #[allow(clippy::cast_precision_loss, reason = "few")]
    pub(super) fn is_busy(&self, processors: usize) -> bool {
        let time = self.length.as_secs_f64() * processors as f64;
        let spare = self.idle.as_secs_f64().min(time - self.used.as_secs_f64());
        spare < time * SPARE_SHARE
    }
}

/// State of the budget. At first, there is none, and everything is admitted.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget {
    /// Means per second: processor time, payments made, and payments ended.
    used: f64,
    made: f64,
    ended: f64,
    /// Processors that the service can use while payments are made: other programs may work for these, too.
    available: f64,
    /// Processor time of a payment, in seconds.
    cost: Option<f64>,
    /// Payments that may be admitted now.
    tokens: f64,
    /// Samples for which the limit is shown: it has just refused a payment.
    shown: u32,
}

impl Budget {
    /// Returns true if another payment may be admitted.
    pub(super) fn has_room(&mut self) -> bool {
        let has_room = self.rate().is_none() || self.tokens >= 1.0;
        if !has_room {
            self.shown = INTERVAL_SAMPLES;
        }
        has_room
    }

    /// Counts an admitted payment.
    pub(super) fn admitted(&mut self) {
        self.tokens -= 1.0;
    }

    /// Adds the payments of a [`SAMPLE`].
    pub(super) fn sampled(&mut self) {
        self.shown = self.shown.saturating_sub(1);
        if let Some(rate) = self.rate() {
            let most = (rate * BURST_SECS).max(1.0);
            self.tokens = (self.tokens + rate * SAMPLE.as_secs_f64()).clamp(0.0, most);
        }
    }

    /// Takes what happened in the last interval.
    #[allow(clippy::cast_precision_loss, reason = "payments of an interval")]
    pub(super) fn measured(&mut self, interval: Interval, processors: usize) {
        let seconds = interval.length.as_secs_f64().max(f64::EPSILON);
        let used = interval.used.as_secs_f64() / seconds;
        let available = (used + interval.idle.as_secs_f64() / seconds).min(processors as f64);
        for (mean, newest) in [
            (&mut self.used, used),
            (&mut self.made, interval.made as f64 / seconds),
            (&mut self.ended, interval.ended as f64 / seconds),
        ] {
            *mean += (newest - *mean) * RECENT_SHARE;
        }
        if (interval.made as f64 / seconds).min(self.ended) < KNOWN_RATE_MIN {
            return;
        }
        let known = if self.available > 0.0 { self.available } else { available };
        self.available = known + (available - known) * RECENT_SHARE;
        // If more payments begin than end, a part of their work is still to come, and the reverse.
        let cost = self.used / f64::midpoint(self.made, self.ended);
        if let Some(known) = &mut self.cost {
            *known += (cost - *known) * COST_SHARE;
        } else {
            self.cost = Some(cost);
            self.tokens = self.rate().unwrap_or_default() * BURST_SECS;
        }
    }

    /// Payments per second that can be completed; `None` while the cost of a payment is not known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.cost.filter(|cost| *cost > 0.0).map(|cost| self.available / cost * USABLE_SHARE)
    }

    /// The rate, if it refused a payment in the last second.
    pub(super) fn limit(&self) -> Option<f64> {
        self.rate().filter(|_| self.shown > 0)
    }
}

/// Processor times of this process and of the machine so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessorTimes {
    pub(super) used: Duration,
    pub(super) idle: Duration,
}

impl ProcessorTimes {
    /// Reads the times. `None` if the system does not have them: then there is no budget.
    #[cfg(target_os = "linux")]
    pub(super) fn read() -> Option<Self> {
        use procfs::CurrentSI as _;

        let own = procfs::process::Process::myself().ok()?.stat().ok()?;
        let all = procfs::KernelStats::current().ok()?.total;
        let time = |ticks: u64| Duration::from_millis(ticks * 1_000 / procfs::ticks_per_second());
        Some(Self { used: time(own.utime + own.stime), idle: time(all.idle + all.iowait.unwrap_or_default()) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read() -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSORS: usize = 2;
    const SECOND: Duration = Duration::from_secs(1);

    /// A second in which the service used this many processors, and this many payments began and ended.
    fn second(budget: &mut Budget, used: f64, idle: f64, (made, ended): (u64, u64)) {
        let time = Duration::from_secs_f64;
        budget.measured(Interval { length: SECOND, used: time(used), idle: time(idle), made, ended }, PROCESSORS);
    }

    /// Returns how many of the payments offered in a second are admitted.
    fn offered(budget: &mut Budget, payments: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..INTERVAL_SAMPLES {
            budget.sampled();
            for _ in 0..payments / INTERVAL_SAMPLES {
                if budget.has_room() {
                    budget.admitted();
                    admitted += 1;
                }
            }
        }
        admitted
    }

    #[test]
    fn everything_is_admitted_until_the_cost_of_a_payment_is_known() {
        let mut budget = Budget::default();
        assert_eq!(offered(&mut budget, 10_000), 10_000);
        // Few payments, and payments that begin while none ends.
        (0..20).for_each(|_| second(&mut budget, 0.2, 1.8, (20, 20)));
        (0..20).for_each(|_| second(&mut budget, 1.0, 1.0, (1_000, 0)));
        assert_eq!((budget.rate(), offered(&mut budget, 10_000)), (None, 10_000));
    }

    #[test]
    fn an_overload_is_limited_to_what_the_processors_can_complete_before_it_shows() {
        let mut budget = Budget::default();
        // 2 ms each, and a quarter of the processors' time is left.
        (0..20).for_each(|_| second(&mut budget, 1.0, 0.5, (500, 500)));
        let rate = budget.rate().unwrap();
        assert!((rate / (750.0 * USABLE_SHARE) - 1.0).abs() < 0.05, "{rate}");
        assert!(budget.has_room(), "from the first moment");
        assert_eq!((budget.limit(), offered(&mut budget, 700)), (None, 700), "below the rate");
        let admitted = f64::from(offered(&mut budget, 5_000));
        assert!((rate * 0.9..rate * (1.2 + BURST_SECS)).contains(&admitted), "{admitted} at {rate}");
        assert_eq!(budget.limit(), Some(rate));
        // Without refusals, the limit is not shown.
        offered(&mut budget, 100);
        offered(&mut budget, 100);
        assert_eq!(budget.limit(), None);
    }

    #[test]
    fn a_pause_changes_nothing() {
        let mut budget = Budget::default();
        // Other programs need half of the processors for the payments.
        (0..30).for_each(|_| second(&mut budget, 1.0, 0.0, (500, 500)));
        let before = budget.rate();
        (0..30).for_each(|_| second(&mut budget, 0.1, 1.9, (0, 0)));
        assert_eq!(budget.rate(), before);
    }

    #[test]
    fn the_rate_is_never_below_what_the_same_share_of_the_processors_completes() {
        for (used, idle, payments) in [(0.1, 1.9, 60), (1.9, 0.1, 60), (2.0, 0.0, 2_000), (4.0, 4.0, 100)] {
            let mut budget = Budget::default();
            (0..40).for_each(|_| second(&mut budget, used, idle, (payments, payments)));
            #[allow(clippy::cast_precision_loss, reason = "few")]
            let completed = payments as f64 * (PROCESSORS as f64 / used).min(1.0);
            let rate = budget.rate().unwrap() / USABLE_SHARE;
            assert!(rate > completed * 0.999, "{used} {payments}: {rate}");
        }
    }

    #[test]
    fn work_that_is_still_to_come_counts_half() {
        let mut budget = Budget::default();
        (0..30).for_each(|_| second(&mut budget, 1.9, 0.1, (400, 400)));
        let before = budget.rate().unwrap();
        for (made, ended) in [(450, 400), (400, 450), (440, 400)] {
            (0..30).for_each(|_| second(&mut budget, 1.9, 0.1, (made, ended)));
            let after = budget.rate().unwrap();
            assert!((0.99..1.07).contains(&(after / before)), "{made} {ended}: {before} {after}");
        }
    }

    /// Payments cost more in an overload than before it.
    #[test]
    fn the_rate_of_an_overload_approaches_what_is_completed() {
        let mut budget = Budget::default();
        (0..30).for_each(|_| second(&mut budget, 1.0, 1.0, (400, 400)));
        let rate = |budget: &Budget| budget.rate().unwrap() / USABLE_SHARE;
        assert!(rate(&budget) > 750.0);
        for _ in 0..60 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let made = rate(&budget) as u64;
            second(&mut budget, 1.95, 0.05, (made, 600));
        }
        assert!((560.0..680.0).contains(&rate(&budget)), "{}", rate(&budget));
    }

    #[test]
    fn processors_with_little_idle_time_are_busy() {
        let millis = Duration::from_millis;
        let interval =
            |used, idle| Interval { length: SECOND, used: millis(used), idle: millis(idle), ..Interval::default() };
        assert!(interval(500, 190).is_busy(PROCESSORS) && !interval(500, 210).is_busy(PROCESSORS));
        // The process may use two of four processors.
        assert!(interval(1_810, 2_000).is_busy(PROCESSORS) && !interval(1_790, 2_000).is_busy(PROCESSORS));
    }

    #[test]
    fn expensive_and_cheap_payments_change_the_rate_slowly() {
        let mut budget = Budget::default();
        (0..30).for_each(|_| second(&mut budget, 1.0, 1.0, (500, 500)));
        let before = budget.rate().unwrap();
        (0..5).for_each(|_| second(&mut budget, 2.0, 0.0, (500, 500)));
        let expensive = budget.rate().unwrap();
        assert!((before * 0.6..before).contains(&expensive), "{before} {expensive}");
        (0..40).for_each(|_| second(&mut budget, 0.5, 1.5, (500, 500)));
        assert!(budget.rate().unwrap() > before * 1.8, "{:?}", budget.rate());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_times_of_this_process_grow() {
        let before = ProcessorTimes::read().unwrap();
        let since = std::time::Instant::now();
        while ProcessorTimes::read().unwrap().used <= before.used {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
    }
}
