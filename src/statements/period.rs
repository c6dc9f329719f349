//! The period of a statement: a half-open interval.

use payferry_domain::Timestamp;

/// Maximum length of a period in days.
pub const PERIOD_DAYS_MAX: i64 = 366;
/// Seconds of a day.
const DAY_SECS: i64 = 86_400;

/// A period that is neither empty nor too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    from: Timestamp,
    to: Timestamp,
}

/// Reason why two times do not form a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeriodFault {
    /// The end is not after the beginning.
    #[error("must be after `from`")]
    Empty,
    /// It is too long.
    #[error("must be at most {PERIOD_DAYS_MAX} days after `from`")]
    TooLong,
}

impl PeriodFault {
    /// The error code for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Empty => "not_after_from",
            Self::TooLong => "period_too_long",
        }
    }
}

impl Period {
    /// Creates the period from `from` (included) to `to` (excluded).
    pub fn new(from: Timestamp, to: Timestamp) -> Result<Self, PeriodFault> {
        if to <= from {
            return Err(PeriodFault::Empty);
        }
        if to > from.plus_secs(PERIOD_DAYS_MAX * DAY_SECS) {
            return Err(PeriodFault::TooLong);
        }
        Ok(Self { from, to })
    }

    /// The first moment of the period.
    pub const fn from(self) -> Timestamp {
        self.from
    }

    /// The first moment after the period.
    pub const fn to(self) -> Timestamp {
        self.to
    }
}

/// Parses an ISO 8601 time, or a day, which means its midnight, UTC.
pub fn moment(text: &str) -> Result<Timestamp, &'static str> {
    if let Ok(day) = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Ok(day.and_time(chrono::NaiveTime::MIN).and_utc().into());
    }
    let moment = chrono::DateTime::parse_from_rfc3339(text);
    moment
        .map(|moment| moment.to_utc().into())
        .map_err(|_| "a day or an ISO 8601 time, such as 2026-01-31 or 2026-01-31T12:00:00Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_not_empty_and_at_most_a_year_long() {
        let at = |text| moment(text).unwrap();
        assert_eq!(moment("2026-11-01").unwrap(), at("2026-11-01T00:00:00Z"));
        assert_eq!(at("2026-11-01T01:00:00+01:00"), at("2026-11-01"));
        for bad in ["", "2026-11", "2026-02-30", "1.11.2026", "2026-11-01T00:00:00", "now"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
        assert!(Period::new(at("2026-11-01"), at("2026-12-01")).is_ok());
        assert!(Period::new(at("2024-01-01"), at("2025-01-01")).is_ok(), "a leap year");
        assert_eq!(Period::new(at("2026-11-01"), at("2026-11-01")), Err(PeriodFault::Empty));
        assert_eq!(Period::new(at("2026-11-01"), at("2026-10-01")), Err(PeriodFault::Empty));
        assert_eq!(Period::new(at("2025-01-01"), at("2026-01-03")), Err(PeriodFault::TooLong));
    }
}
