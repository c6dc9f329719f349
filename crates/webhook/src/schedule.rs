//! Retry schedule of failed deliveries. Pure.

use std::time::Duration;

use payferry_journal::DELIVERY_RETRIES_MAX;

/// Jitter of a delay, percent, so that deliveries that failed together are not retried together.
pub const JITTER_PERCENT: u32 = 10;
/// Upper limit for a receiver's `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Number of retries in the schedule.
const RETRIES: usize = 3;
const _: () = assert!(RETRIES == 3 && DELIVERY_RETRIES_MAX == 3, "the schedule has a delay for every retry");

/// Delays before the retries.
#[derive(Clone, Debug)]
pub struct Schedule {
    delays: [Duration; RETRIES],
}

impl Default for Schedule {
    /// 5 s, 30 s, 5 min.
    fn default() -> Self {
        Self { delays: [Duration::from_secs(5), Duration::from_secs(30), Duration::from_mins(5)] }
    }
}

/// Effect of a failed attempt on its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// Retried after this delay, with this many retries left then.
    Retry { after: Duration, retries_left: i64 },
    /// Not retried automatically.
    Exhausted,
}

impl Schedule {
    /// Creates a schedule with other delays, for tests.
    pub const fn of(delays: [Duration; RETRIES]) -> Self {
        Self { delays }
    }

    /// Decides after a failed attempt. It takes one of the `retries_left` unless it was `free`, that is, a delivery's
    /// first attempt or a probe. `spread` in 0..=1 selects the delay within the jitter.
    pub(super) fn after_failure(
        &self,
        free: bool,
        retries_left: i64,
        retry_after: Option<Duration>,
        spread: f64,
    ) -> AfterFailure {
        let retries_left = if free { retries_left } else { retries_left - 1 };
        if retries_left <= 0 {
            return AfterFailure::Exhausted;
        }
        let made = usize::try_from(DELIVERY_RETRIES_MAX - retries_left).unwrap_or(0);
        let delay = self.delays[made.min(self.delays.len() - 1)];
        let jitter = delay * JITTER_PERCENT / 100;
        let delay = delay + jitter.mul_f64(spread.clamp(0.0, 1.0));
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        AfterFailure::Retry { after: delay.max(asked), retries_left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_attempts_with_growing_delays() {
        let schedule = Schedule::default();
        let mut left = DELIVERY_RETRIES_MAX;
        let mut delays = Vec::new();
        let mut first = true;
        while let AfterFailure::Retry { after, retries_left } = schedule.after_failure(first, left, None, 0.0) {
            delays.push(after.as_secs());
            (left, first) = (retries_left, false);
        }
        assert_eq!(delays, [5, 30, 300]);
    }

    #[test]
    fn retry_after_extends_a_delay_within_bounds() {
        let schedule = Schedule::default();
        let after = |asked: u64| match schedule.after_failure(true, 3, Some(Duration::from_secs(asked)), 0.0) {
            AfterFailure::Retry { after, .. } => after.as_secs(),
            AfterFailure::Exhausted => panic!("retries are left"),
        };
        assert_eq!((after(1), after(60), after(1_000_000)), (5, 60, RETRY_AFTER_MAX.as_secs()));
    }

    #[test]
    fn jitter_stays_within_its_percentage() {
        let schedule = Schedule::default();
        let retry = schedule.after_failure(true, 3, None, 1.0);
        assert_eq!(retry, AfterFailure::Retry { after: Duration::from_millis(5_500), retries_left: 3 });
    }
}
