//! A point in time: milliseconds since 1970 UTC. There is no clock here; the caller passes the time as data.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, NaiveDate, NaiveTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch. Serialised as the number; displayed as ISO 8601 UTC with milliseconds; parsed from
/// an ISO 8601 time with an offset, or from a date, which means 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Error of a text that is neither a time nor a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a date or an ISO 8601 time, such as 2026-01-31 or 2026-01-31T12:00:00Z")]
pub struct TimestampError;

impl Timestamp {
    /// Creates a timestamp from seconds since the epoch, the unit of block headers.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Returns milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Adds seconds, saturating.
    pub const fn plus_secs(self, secs: i64) -> Self {
        Self(self.0.saturating_add(secs.saturating_mul(1_000)))
    }

    /// Adds milliseconds, saturating.
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds since `earlier`, saturating. Negative if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
        // The parser also accepts other spellings, such as 2026-1-5.
        if let Some(date) = date.filter(|date| date.to_string() == text) {
            return Ok(date.and_time(NaiveTime::MIN).and_utc().into());
        }
        DateTime::parse_from_rfc3339(text).map(|time| time.to_utc().into()).map_err(|_| TimestampError)
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(moment: DateTime<Utc>) -> Self {
        Self(moment.timestamp_millis())
    }
}

impl From<SystemTime> for Timestamp {
    /// Cut to whole milliseconds.
    fn from(moment: SystemTime) -> Self {
        let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        match moment.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(millis(since)),
            Err(before) => Self(-millis(before.duration())),
        }
    }
}

impl From<Timestamp> for DateTime<Utc> {
    /// Clamps values outside the range of chrono (about 260,000 years) to the nearest bound.
    fn from(moment: Timestamp) -> Self {
        DateTime::from_timestamp_millis(moment.0).unwrap_or(if moment.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&DateTime::<Utc>::from(*self).to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_iso_8601_with_milliseconds() {
        assert_eq!(Timestamp(1_732_175_655_007).to_string(), "2024-11-21T07:54:15.007Z");
        assert_eq!(Timestamp::from_secs(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(i64::MAX).plus_secs(5), Timestamp(i64::MAX));
        assert!(!Timestamp(i64::MAX).to_string().is_empty());
        assert_eq!(serde_json::to_string(&Timestamp(5)).unwrap(), "5");
        assert_eq!(Timestamp::from(DateTime::<Utc>::from(Timestamp(77))), Timestamp(77));
        let moment = |ms| UNIX_EPOCH + std::time::Duration::from_millis(ms);
        assert_eq!(Timestamp::from(moment(1_732_175_655_007)), Timestamp(1_732_175_655_007));
        assert_eq!(Timestamp::from(UNIX_EPOCH - std::time::Duration::from_millis(5)), Timestamp(-5));
    }

    #[test]
    fn parses_a_time_with_an_offset_or_a_date() {
        let at = |text: &str| text.parse::<Timestamp>();
        assert_eq!(at("2024-11-21T07:54:15.007Z"), Ok(Timestamp(1_732_175_655_007)));
        assert_eq!(at("2026-11-01T01:00:00+01:00"), at("2026-11-01"), "a date means 00:00 UTC");
        assert_eq!(at("1970-01-02"), Ok(Timestamp::from_secs(86_400)));
        for bad in [
            "",
            "2026-11",
            "2026-02-30",
            "2026-1-001",
            "1.11.2026",
            "2026-11-01T00:00:00",
            "2026-11-01 00:00",
            "now",
            "20261101",
            "2026-1-5",
            "+2026-11-1",
            " 2026-11-01",
            "2026-11-01Z",
        ] {
            assert_eq!(at(bad), Err(TimestampError), "{bad}");
        }
    }
}
