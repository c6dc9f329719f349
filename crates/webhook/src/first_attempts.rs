//! How long deliveries wait for their first attempt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest wait that counts, in milliseconds. A longer one is not the service's: the receiver or the service was away.
const WAIT_MAX_MS: i64 = 10_000;

/// First attempts of a service, except those whose delivery waited for longer than ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirstAttempts {
    count: u64,
    waited_ms: u64,
}

impl FirstAttempts {
    /// Mean time from an event to the first attempt at its delivery, of those since `before`. Zero without any.
    pub fn mean_delay_since(self, before: Self) -> Duration {
        let count = self.count.saturating_sub(before.count);
        Duration::from_millis(self.waited_ms.saturating_sub(before.waited_ms).checked_div(count).unwrap_or_default())
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    count: AtomicU64,
    waited_ms: AtomicU64,
}

impl Counts {
    pub(super) fn count(&self, waited_ms: i64) {
        if waited_ms <= WAIT_MAX_MS {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.waited_ms.fetch_add(waited_ms.max(0).unsigned_abs(), Ordering::Relaxed);
        }
    }

    pub(super) fn now(&self) -> FirstAttempts {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        FirstAttempts { count: read(&self.count), waited_ms: read(&self.waited_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_the_attempts_since_and_leaves_out_long_waits() {
        let counts = Counts::default();
        counts.count(5_000);
        let before = counts.now();
        assert_eq!(counts.now().mean_delay_since(before), Duration::ZERO);
        for waited_ms in [100, 300, WAIT_MAX_MS + 1, -5] {
            counts.count(waited_ms);
        }
        assert_eq!(counts.now().mean_delay_since(before), Duration::from_millis(400 / 3));
    }
}
