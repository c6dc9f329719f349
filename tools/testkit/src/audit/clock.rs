//! Clock of the service under load.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Tolerance between clocks that are read at different moments.
pub(super) const SLACK: TimeDelta = TimeDelta::milliseconds(50);

/// The service's clock. A sandbox may have moved it forward during the load.
#[derive(Debug, Clone, Default)]
pub struct ServiceClock {
    /// Offsets from real time so far, ascending.
    offsets: Vec<TimeDelta>,
}

impl ServiceClock {
    /// Records a new offset.
    pub fn ahead(&mut self, secs: i64) {
        self.offsets.push(TimeDelta::try_seconds(secs).unwrap_or(TimeDelta::MAX));
    }

    /// Records the offset after a move. Until the move, times of the earlier offset are valid, too.
    pub fn move_by(&mut self, secs: u64) {
        let by = i64::try_from(secs).ok().and_then(TimeDelta::try_seconds).unwrap_or(TimeDelta::MAX);
        let offset = self.offsets.last().copied().unwrap_or_default();
        self.offsets.push(offset.checked_add(&by).unwrap_or(TimeDelta::MAX));
    }

    /// Returns the time of the service's clock at real time `now`, if nothing else moved the clock.
    pub fn shows(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let offset = self.offsets.last().copied().unwrap_or_default();
        now.checked_add_signed(offset).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// Returns the age of an event whose webhook arrived at `now`.
    pub fn age(&self, happened: &str, now: DateTime<Utc>) -> Option<Duration> {
        let seems = now.signed_duration_since(DateTime::parse_from_rfc3339(happened).ok()?);
        // An event cannot be later than its webhook. An offset that would make it later was set afterwards.
        let mut ages = self.offsets.iter().filter_map(|offset| seems.checked_add(offset));
        let age = ages.find(|age| *age >= -SLACK)?;
        Some(age.to_std().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_right_if_the_clock_moves() {
        let mut clock = ServiceClock::default();
        clock.ahead(0);
        clock.move_by(61);
        let now = DateTime::UNIX_EPOCH;
        assert_eq!(clock.shows(now), now + TimeDelta::seconds(61));
        let age = |millis: i64| clock.age(&(now + TimeDelta::milliseconds(millis)).to_rfc3339(), now);
        assert_eq!(age(-200), Some(Duration::from_millis(200)), "before it moved");
        assert_eq!(age(61_000 - 200), Some(Duration::from_millis(200)), "after");
        assert_eq!(age(20), Some(Duration::ZERO));
        assert_eq!(age(3_600_000), None);
        assert_eq!(clock.age("yesterday", now), None);
    }
}
