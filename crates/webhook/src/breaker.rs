//! Circuit breaker: pauses an endpoint that keeps failing, so that deliveries keep their retries. Pure.
//!
//! While it is open, only probes go out, one delivery at a time. A failed probe takes no retry, so an outage alone
//! exhausts no delivery, however long it lasts.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Consecutive failures that open the breaker. More than the events of one payment can cause (four, with four attempts
/// each): retries of a single payment follow the schedule alone.
pub const TRIP_AFTER: u32 = 20;
/// Initial open time; doubles with each failed probe.
pub const OPEN_MIN: Duration = Duration::from_secs(2);
/// Longest open time.
pub const OPEN_MAX: Duration = Duration::from_mins(1);

/// Circuit breaker of one endpoint.
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

/// State of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts go out.
    Closed,
    /// No attempts.
    Open,
    /// One delivery goes out as a probe.
    Probing,
}

/// Current permission to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// Up to the concurrency limit.
    Free,
    /// One delivery, as a probe.
    Probe,
    /// Nothing before this instant.
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
            // Attempts already in progress when it opened carry no new information.
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
    fn opens_after_consecutive_failures_probes_and_closes() {
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
    fn attempts_in_progress_do_not_prolong_it_and_pauses_are_bounded() {
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
    fn success_resets_the_failure_count() {
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
