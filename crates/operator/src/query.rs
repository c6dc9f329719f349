//! What the operator is shown, for programs (as JSON) and for people (on the live pages) alike.
//!
//! Every function here is cheap however many payments are live: what is counted is counted in bounds or kept by the
//! actors, and what is listed is a bounded page. What the service knows by itself is shown also while the database is
//! away, and soon: that is when somebody looks. Deliberately absent: changes.

use std::fmt;
use std::time::Duration;

use payferry_actors::System;
use sea_orm::{ConnectionTrait, DbErr, RuntimeErr};
use serde::Serialize;
use tokio::time::Instant;

/// How long the database may take to answer at all.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take over everything that is shown at once. Together they are less than a page waits to be brought to
/// the present (`live.js`).
const READING_PATIENCE: Duration = Duration::from_secs(4);

/// Whether the database answers; if not, why.
pub(crate) async fn answers(system: &System) -> Result<(), DbErr> {
    let asked = system.database().reader().execute_unprepared("SELECT 1");
    by(Instant::now() + ANSWER_PATIENCE, asked).await.map(|_| ())
}

/// By when everything has to be read that is shown at once.
pub(crate) fn soon() -> Instant {
    Instant::now() + READING_PATIENCE
}

/// What is read by then, or why it is not.
pub(crate) async fn by<T>(deadline: Instant, reading: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    let late = || DbErr::Conn(RuntimeErr::Internal("it did not answer in time".to_owned()));
    tokio::time::timeout_at(deadline, reading).await.unwrap_or_else(|_| Err(late()))
}

/// What is read by then, or nothing, and the log says why.
pub(crate) async fn if_by<T>(
    deadline: Instant,
    what: &str,
    reading: impl Future<Output = Result<T, DbErr>>,
) -> Option<T> {
    let read = by(deadline, reading).await;
    read.inspect_err(|error| tracing::warn!(%error, "{what} could not be read for the operator: {error}")).ok()
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
