//! How often one of very many may fail in a short time before it is given up: payments under their shards, payouts and
//! withdrawals under their desk.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Restarts one gets within the window before it is quarantined.
pub const RESTARTS_MAX: usize = 3;
/// The window.
pub const RESTARTS_WINDOW: Duration = Duration::from_mins(1);

/// The recent failures of those that failed.
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
    /// Notes a failure; answers which one within the window it is, counted from 1. Nothing if it was one too many: it is to
    /// be given up, and its budget is whole again for when somebody lets it run.
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

    /// Forgets failures that are out of the window.
    pub fn forget_old(&mut self, now: Instant) {
        let is_recent = |last: &Instant| now.duration_since(*last) < RESTARTS_WINDOW;
        self.failures.retain(|_, failures| failures.back().is_some_and(is_recent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_are_forgiven_and_the_fourth_is_one_too_many() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!([0, 10, 20].map(|secs| budget.spend("bad", at(secs))), [Some(1), Some(2), Some(3)]);
        assert_eq!(budget.spend("other", at(21)), Some(1), "each has its own");
        // The first is a minute ago by then.
        assert_eq!(budget.spend("bad", at(60)), Some(3));
        assert_eq!(budget.spend("bad", at(61)), None);
        assert_eq!(budget.spend("bad", at(62)), Some(1), "it was let run again");
    }

    #[test]
    fn what_is_long_ago_is_not_kept() {
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
