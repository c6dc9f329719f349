//! When a failed delivery is tried again. Pure.

use std::time::Duration;

use payferry_journal::DELIVERY_RETRIES_MAX;

/// How far a delay is spread, so that many deliveries that failed together do not come back together.
pub const JITTER_PERCENT: u32 = 10;
/// A receiver's `Retry-After` is honoured up to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Retries in the schedule.
const RETRIES: usize = 3;
const _: () = assert!(RETRIES == 3 && DELIVERY_RETRIES_MAX == 3, "the schedule has a delay for every retry");

/// The delays before each retry.
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

/// What becomes of a delivery whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// Tried again after this long, with so many retries left then.
    Retry { after: Duration, retries_left: i64 },
    /// Not tried again by itself.
    Exhausted,
}

impl Schedule {
    /// Other delays, for tests.
    pub const fn of(delays: [Duration; RETRIES]) -> Self {
        Self { delays }
    }

    /// After a failed attempt, which took one of the `retries_left` unless it was `free`: the first of a delivery, or a
    /// probe. `spread` in 0..=1 places the delay in its jitter.
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
    fn four_attempts_in_all_at_growing_distances() {
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
    fn retry_after_lengthens_a_delay_within_bounds() {
        let schedule = Schedule::default();
        let after = |asked: u64| match schedule.after_failure(true, 3, Some(Duration::from_secs(asked)), 0.0) {
            AfterFailure::Retry { after, .. } => after.as_secs(),
            AfterFailure::Exhausted => panic!("retries are left"),
        };
        assert_eq!((after(1), after(60), after(1_000_000)), (5, 60, RETRY_AFTER_MAX.as_secs()));
    }

    #[test]
    fn jitter_stays_within_its_part() {
        let schedule = Schedule::default();
        let retry = schedule.after_failure(true, 3, None, 1.0);
        assert_eq!(retry, AfterFailure::Retry { after: Duration::from_millis(5_500), retries_left: 3 });
    }
}
