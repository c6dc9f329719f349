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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_not_empty_and_at_most_a_year_long() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(Period::new(at("2026-11-01"), at("2026-12-01")).is_ok());
        assert!(Period::new(at("2024-01-01"), at("2025-01-01")).is_ok(), "a leap year");
        assert_eq!(Period::new(at("2026-11-01"), at("2026-11-01")), Err(PeriodFault::Empty));
        assert_eq!(Period::new(at("2026-11-01"), at("2026-10-01")), Err(PeriodFault::Empty));
        assert_eq!(Period::new(at("2025-01-01"), at("2026-01-03")), Err(PeriodFault::TooLong));
    }
}
