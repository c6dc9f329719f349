//! The clock of the service that is loaded.

use std::time::Duration;

use payferry_testkit::wire::Timestamp;

/// How much later than its webhook, or earlier than its time, an event may seem to be: clocks are read at different moments.
pub(super) const SLACK_MS: i64 = 50;

/// The service's clock, which a sandbox may have moved on while the load ran.
#[derive(Debug, Clone, Default)]
pub struct ServiceClock {
    /// How far it was ahead, in milliseconds, growing.
    offsets_ms: Vec<i64>,
}

impl ServiceClock {
    /// It is so far ahead from now on.
    pub fn ahead(&mut self, secs: i64) {
        self.offsets_ms.push(secs.saturating_mul(1_000));
    }

    /// What it shows at a moment of the real time, if nobody else moved it on.
    pub fn shows(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(self.offsets_ms.last().copied().unwrap_or_default())
    }

    /// How long before `now` something happened, of which a webhook that came now tells.
    pub fn age(&self, happened: &str, now: Timestamp) -> Option<Duration> {
        let happened = Timestamp::parse(happened)?.as_millis();
        // It cannot have happened after its webhook, so that an offset that says so came later.
        let ages = self.offsets_ms.iter().map(|offset| now.as_millis() - (happened - offset));
        let age = ages.into_iter().find(|age| *age >= -SLACK_MS)?;
        Some(Duration::from_millis(age.max(0).unsigned_abs()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_may_move_on_in_between() {
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
