//! Clock of the service under load.

use std::time::Duration;

use crate::wire::Timestamp;

/// Tolerance between clocks that are read at different moments, in milliseconds.
pub(super) const SLACK_MS: i64 = 50;

/// The service's clock. A sandbox may have moved it forward during the load.
#[derive(Debug, Clone, Default)]
pub struct ServiceClock {
    /// Offsets from real time so far, in milliseconds, ascending.
    offsets_ms: Vec<i64>,
}

impl ServiceClock {
    /// Records a new offset.
    pub fn ahead(&mut self, secs: i64) {
        self.offsets_ms.push(secs.saturating_mul(1_000));
    }

    /// Returns the time of the service's clock at real time `now`, if nothing else moved the clock.
    pub fn shows(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(self.offsets_ms.last().copied().unwrap_or_default())
    }

    /// Returns the age of an event whose webhook arrived at `now`.
    pub fn age(&self, happened: &str, now: Timestamp) -> Option<Duration> {
        let happened = Timestamp::parse(happened)?.as_millis();
        // An event cannot be later than its webhook. An offset that would make it later was set afterwards.
        let ages = self.offsets_ms.iter().map(|offset| now.as_millis() - (happened - offset));
        let age = ages.into_iter().find(|age| *age >= -SLACK_MS)?;
        Some(Duration::from_millis(age.max(0).unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_right_if_the_clock_moves() {
        let mut clock = ServiceClock::default();
        clock.ahead(0);
        clock.ahead(61);
        let now = Timestamp::from_secs(1_000_000);
        assert_eq!(clock.shows(now), now.plus_secs(61));
        let age = |happened: Timestamp| clock.age(&happened.to_string(), now);
        assert_eq!(age(now.plus_millis(-200)), Some(Duration::from_millis(200)), "before it moved");
        assert_eq!(age(now.plus_secs(61).plus_millis(-200)), Some(Duration::from_millis(200)), "after");
        assert_eq!(age(now.plus_millis(20)), Some(Duration::ZERO));
        assert_eq!(age(now.plus_secs(3_600)), None);
        assert_eq!(clock.age("yesterday", now), None);
    }
}
