//! What the operator is shown, for programs (as JSON) and for people (on the live pages) alike.
//!
//! Every function here is cheap however many payments are live: what is counted is counted in bounds or kept by the
//! actors, and what is listed is a bounded page. Deliberately absent: changes.

pub mod aside;
pub mod chains;
pub mod customers;
pub mod decisions;
pub mod overview;
pub mod payment;
pub mod sendings;
pub mod stuck;
pub mod webhooks;

use std::fmt;

use payferry_domain::Timestamp;
use serde::{Serialize, Serializer};

/// A moment, shown as ISO 8601.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

/// Rows that are counted at most; more are shown as "more than so many".
pub const COUNTED_MAX: u64 = 10_000;

/// A count in bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    /// How many; of one count at most [`COUNTED_MAX`].
    pub counted: u64,
    /// Whether there are more than were counted.
    pub more: bool,
}

impl Count {
    /// Of rows that were counted up to one more than [`COUNTED_MAX`].
    pub fn of(counted: i64) -> Self {
        let counted = u64::try_from(counted).unwrap_or(0);
        Self { counted: counted.min(COUNTED_MAX), more: counted > COUNTED_MAX }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { counted: self.counted + other.counted, more: self.more || other.more }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.more { "more than " } else { "" };
        write!(f, "{more}{}", self.counted)
    }
}
