//! Budget of restarts within a time window, before an actor is quarantined: for payments under their shards, and for
//! payouts and withdrawals under their supervisor.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Restarts within the window before the quarantine.
pub const RESTARTS_MAX: usize = 3;
/// Length of the window.
pub const RESTARTS_WINDOW: Duration = Duration::from_mins(1);

/// Recent failures by actor.
#[derive(Debug)]
pub struct Budget<K> {
    failures: HashMap<K, VecDeque<Instant>>,
}

impl<K> Default for Budget<K> {
    fn default() -> Self {
        Self { failures: HashMap::new() }
    }
}

impl<K: Eq + Hash> Budget<K> {
    /// Records a failure; returns its number within the window, counted from 1. `None` if the budget is exceeded: the
    /// actor must be quarantined, and its budget is full again after a release.
    pub fn spend(&mut self, of: K, now: Instant) -> Option<usize> {
        let failures = self.failures.entry(of).or_default();
        failures.retain(|failure| now.duration_since(*failure) < RESTARTS_WINDOW);
        failures.push_back(now);
        let nth = failures.len();
        if nth > RESTARTS_MAX {
            failures.clear();
            return None;
        }
        Some(nth)
    }

    /// Drops failures outside of the window.
    pub fn forget_old(&mut self, now: Instant) {
        let is_recent = |last: &Instant| now.duration_since(*last) < RESTARTS_WINDOW;
        self.failures.retain(|_, failures| failures.back().is_some_and(is_recent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_three_failures_within_a_minute() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!([0, 10, 20].map(|secs| budget.spend("bad", at(secs))), [Some(1), Some(2), Some(3)]);
        assert_eq!(budget.spend("other", at(21)), Some(1), "each key has its own budget");
        // The first failure is a minute old by then.
        assert_eq!(budget.spend("bad", at(60)), Some(3));
        assert_eq!(budget.spend("bad", at(61)), None);
        assert_eq!(budget.spend("bad", at(62)), Some(1), "the budget is full after a release");
    }

    #[test]
    fn drops_old_failures() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        budget.spend("old", start);
        budget.spend("recent", start + Duration::from_secs(30));
        for _ in 0..=RESTARTS_MAX {
            budget.spend("given up", start + Duration::from_secs(30));
        }
        budget.forget_old(start + RESTARTS_WINDOW);
        assert_eq!(budget.failures.keys().collect::<Vec<_>>(), [&"recent"]);
    }
}
