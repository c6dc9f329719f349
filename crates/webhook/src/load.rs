//! Load that an endpoint takes: a circuit breaker, and a limit of concurrent attempts. Pure.
//!
//! The breaker pauses an endpoint that keeps failing, so that deliveries keep their retries. While it is open, only probes go
//! out, one delivery at a time. A failed probe takes no retry, so an outage alone exhausts no delivery, however long it lasts.
//!
//! The limit grows while the receiver answers and the limit is used, and halves on strain.

use std::time::{Duration, Instant};

use payferry_runtime::supervise::doubled;
use serde::Serialize;
use utoipa::ToSchema;

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
    /// Failed probes since it opened.
    probes_failed: u32,
}

/// State of a breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts go out.
    #[default]
    Closed,
    /// One delivery goes out as a probe.
    Probing,
    /// No attempts.
    Open,
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
        let probes_failed = match self.open {
            // Attempts already in progress when it opened carry no new information.
            Some(open) if now < open.until => return,
            Some(open) => open.probes_failed.saturating_add(1),
            None if self.failures >= TRIP_AFTER => 0,
            None => return,
        };
        self.open = Some(Open { until: now + doubled(OPEN_MIN, OPEN_MAX, probes_failed), probes_failed });
    }

    pub(super) fn state(&self, now: Instant) -> BreakerState {
        match self.permission(now) {
            Permission::Free => BreakerState::Closed,
            Permission::Probe => BreakerState::Probing,
            Permission::Wait(_) => BreakerState::Open,
        }
    }
}

/// Attempts that every endpoint may have in progress.
pub const IN_FLIGHT_MIN: usize = 4;
/// Upper bound of the limit.
pub const IN_FLIGHT_MAX: usize = 256;

/// Additive increase, multiplicative decrease; doubles until the first strain.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: usize,
    successes: usize,
    was_strained: bool,
    /// Number of decreases.
    decreases: u64,
}

/// Start of an attempt, counted in decreases. An attempt that began before the last decrease carries no information
/// about the current limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch(u64);

impl Default for Concurrency {
    fn default() -> Self {
        Self { limit: IN_FLIGHT_MIN, successes: 0, was_strained: false, decreases: 0 }
    }
}

impl Concurrency {
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Epoch for an attempt that begins now.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.decreases)
    }

    /// Records an acknowledged attempt while `in_flight` were in progress. An unused limit does not rise.
    pub(super) fn succeeded(&mut self, in_flight: usize) {
        if in_flight < self.limit {
            return;
        }
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = if self.was_strained { self.limit + 1 } else { self.limit * 2 }.min(IN_FLIGHT_MAX);
        }
    }

    /// Records that an attempt of `epoch` got no answer or an overload status.
    pub(super) fn strained(&mut self, epoch: Epoch) {
        if epoch != self.epoch() {
            return;
        }
        self.successes = 0;
        self.was_strained = true;
        self.decreases += 1;
        self.limit = (self.limit / 2).max(IN_FLIGHT_MIN);
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

    #[test]
    fn grows_on_success_and_halves_on_strain_within_bounds() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MAX);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX);
        concurrency.strained(concurrency.epoch());
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2);
        for _ in 0..IN_FLIGHT_MAX / 2 {
            concurrency.succeeded(IN_FLIGHT_MAX / 2);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2 + 1);
        for _ in 0..20 {
            concurrency.strained(concurrency.epoch());
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }

    #[test]
    fn concurrent_strained_attempts_halve_it_once() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MAX);
        }
        let together = concurrency.epoch();
        for _ in 0..IN_FLIGHT_MAX {
            concurrency.strained(together);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2);
    }

    #[test]
    fn does_not_grow_while_unused() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MIN - 1);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }
}
