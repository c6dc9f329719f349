//! A circuit breaker: an endpoint that keeps failing is left alone for a while, so that deliveries keep their attempts.
//! Pure.
//!
//! While it is open nothing is attempted but one delivery at a time, as a probe, and a probe that fails takes no retry:
//! however long an endpoint is away, nothing is exhausted by that alone.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Failures in a row that open it. More than one payment's events (four, of four attempts each) can bring together: one
/// payment is retried by the schedule alone.
pub const TRIP_AFTER: u32 = 20;
/// How long it stays open at first; doubles with each probe that fails.
pub const OPEN_MIN: Duration = Duration::from_secs(2);
/// The longest it stays open.
pub const OPEN_MAX: Duration = Duration::from_mins(1);

/// The breaker of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    until: Instant,
    pause: Duration,
}

/// How a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts go out.
    Closed,
    /// Nothing is attempted.
    Open,
    /// One delivery goes out, to see whether the endpoint is back.
    Probing,
}

/// What may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// As much as concurrency allows.
    Free,
    /// One delivery, to see whether the endpoint is back.
    Probe,
    /// Nothing before this moment.
    Wait(Instant),
}

impl Breaker {
    pub(super) fn permission(&self, now: Instant) -> Permission {
        match self.open {
            None => Permission::Free,
            Some(open) if now < open.until => Permission::Wait(open.until),
            Some(_) => Permission::Probe,
        }
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let pause = match self.open {
            // Attempts that were under way when it opened say nothing new.
            Some(open) if now < open.until => return,
            Some(open) => (open.pause * 2).min(OPEN_MAX),
            None if self.failures >= TRIP_AFTER => OPEN_MIN,
            None => return,
        };
        self.open = Some(Open { until: now + pause, pause });
    }

    pub(super) fn state(&self, now: Instant) -> BreakerState {
        match self.permission(now) {
            Permission::Free => BreakerState::Closed,
            Permission::Probe => BreakerState::Probing,
            Permission::Wait(_) => BreakerState::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_probes_and_closes() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 1..TRIP_AFTER {
            breaker.failed(start);
        }
        assert_eq!(breaker.permission(start), Permission::Free);
        breaker.failed(start);
        assert_eq!(breaker.permission(start), Permission::Wait(start + OPEN_MIN));
        let later = start + OPEN_MIN;
        assert_eq!(breaker.permission(later), Permission::Probe);
        breaker.failed(later);
        assert_eq!(breaker.permission(later), Permission::Wait(later + OPEN_MIN * 2));
        breaker.succeeded();
        assert_eq!(breaker.permission(later), Permission::Free);
    }

    #[test]
    fn what_was_under_way_when_it_opened_does_not_prolong_it_and_pauses_have_a_bound() {
        let mut now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..TRIP_AFTER + 100 {
            breaker.failed(now);
        }
        assert_eq!(breaker.permission(now), Permission::Wait(now + OPEN_MIN));
        for _ in 0..20 {
            let Permission::Wait(until) = breaker.permission(now) else { panic!("it is open") };
            assert!(until - now <= OPEN_MAX);
            now = until;
            assert_eq!(breaker.state(now), BreakerState::Probing);
            breaker.failed(now);
        }
        assert_eq!(breaker.permission(now), Permission::Wait(now + OPEN_MAX));
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let mut breaker = Breaker::default();
        for _ in 0..3 * TRIP_AFTER {
            for _ in 1..TRIP_AFTER {
                breaker.failed(Instant::now());
            }
            breaker.succeeded();
        }
        assert_eq!(breaker.state(Instant::now()), BreakerState::Closed);
    }
}
