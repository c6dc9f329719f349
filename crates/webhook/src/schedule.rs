//! Retry schedule of failed deliveries. Pure.

use std::time::Duration;

use payferry_domain::webhook::RetrySchedule;
use payferry_journal::DELIVERY_RETRIES_MAX;

/// Jitter of a delay, percent, so that deliveries that failed together are not retried together.
pub const JITTER_PERCENT: u32 = 10;
/// Upper limit for a receiver's `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Delays of the extended schedule. The default one is its beginning.
const EXTENDED: [Duration; 10] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(9),
    Duration::from_hours(12),
    Duration::from_hours(16),
    Duration::from_hours(20),
];
/// Retries of the default schedule.
const RETRIES_DEFAULT: usize = 3;
const _: () =
    assert!(EXTENDED.len() == 10 && DELIVERY_RETRIES_MAX == 10, "the longest schedule has a delay for every retry");

/// Delays before the retries.
#[derive(Clone, Debug)]
pub struct Schedule {
    default: [Duration; RETRIES_DEFAULT],
}

impl Default for Schedule {
    /// 5 s, 30 s, 5 min.
    fn default() -> Self {
        Self { default: [EXTENDED[0], EXTENDED[1], EXTENDED[2]] }
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
    pub const fn of(default: [Duration; RETRIES_DEFAULT]) -> Self {
        Self { default }
    }

    fn delays(&self, schedule: RetrySchedule) -> &[Duration] {
        match schedule {
            RetrySchedule::Default => &self.default,
            RetrySchedule::Extended => &EXTENDED,
        }
    }

    /// Decides after a failed attempt. It takes one of the `retries_left` unless it was `free`, that is, a delivery's
    /// first attempt or a probe. `spread` in 0..=1 selects the delay within the jitter.
    pub(super) fn after_failure(
        &self,
        schedule: RetrySchedule,
        free: bool,
        retries_left: i64,
        retry_after: Option<Duration>,
        spread: f64,
    ) -> AfterFailure {
        let retries_left = if free { retries_left } else { retries_left - 1 };
        let made = usize::try_from(DELIVERY_RETRIES_MAX - retries_left).unwrap_or(0);
        let Some(delay) = self.delays(schedule).get(made).copied() else { return AfterFailure::Exhausted };
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
    fn delays_grow_until_the_schedule_ends() {
        let delays = |kind: RetrySchedule| {
            let (mut left, mut delays, mut first) = (DELIVERY_RETRIES_MAX, Vec::new(), true);
            let next = |first, left| Schedule::default().after_failure(kind, first, left, None, 0.0);
            while let AfterFailure::Retry { after, retries_left } = next(first, left) {
                delays.push(after);
                (left, first) = (retries_left, false);
            }
            delays
        };
        assert_eq!(delays(RetrySchedule::Default), [5, 30, 300].map(Duration::from_secs));
        let extended = delays(RetrySchedule::Extended);
        assert!(extended.is_sorted() && extended.len() == 10, "{extended:?}");
        let whole: Duration = extended.iter().sum();
        assert!(whole > Duration::from_hours(60) && whole * (100 + JITTER_PERCENT) / 100 < Duration::from_hours(72));
    }

    /// The number of retries that were made counts, so that a change of the schedule applies to waiting deliveries, too.
    #[test]
    fn another_schedule_continues_with_the_next_delay() {
        let after = |kind, left| Schedule::default().after_failure(kind, false, left, None, 0.0);
        let third = AfterFailure::Retry { after: Duration::from_mins(30), retries_left: DELIVERY_RETRIES_MAX - 3 };
        assert_eq!(after(RetrySchedule::Extended, DELIVERY_RETRIES_MAX - 2), third);
        assert_eq!(after(RetrySchedule::Default, DELIVERY_RETRIES_MAX - 5), AfterFailure::Exhausted);
    }

    #[test]
    fn retry_after_extends_a_delay_within_bounds() {
        let schedule = Schedule::default();
        let after = |asked: u64| match schedule.after_failure(
            RetrySchedule::Default,
            true,
            DELIVERY_RETRIES_MAX,
            Some(Duration::from_secs(asked)),
            0.0,
        ) {
            AfterFailure::Retry { after, .. } => after.as_secs(),
            AfterFailure::Exhausted => panic!("retries are left"),
        };
        assert_eq!((after(1), after(60), after(1_000_000)), (5, 60, RETRY_AFTER_MAX.as_secs()));
    }

    #[test]
    fn jitter_stays_within_its_percentage() {
        let schedule = Schedule::default();
        let retry = schedule.after_failure(RetrySchedule::Default, true, DELIVERY_RETRIES_MAX, None, 1.0);
        let after = Duration::from_millis(5_500);
        assert_eq!(retry, AfterFailure::Retry { after, retries_left: DELIVERY_RETRIES_MAX });
    }
}
