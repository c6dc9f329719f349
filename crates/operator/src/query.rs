//! Data for the operator, as JSON for programs and for the live pages.
//!
//! Every function is cheap for any number of live payments: counts have a limit or are kept by the actors, and lists
//! are bounded pages. Data that the service has in memory is also available, without delay, while the database is down,
//! because that is when it is needed. Deliberately absent: changes.

use std::time::Duration;

use payferry_actors::System;
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbErr, FromQueryResult, RuntimeErr, Statement, Value};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

/// Time limit of the check that the database answers.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// Time limit of all queries of one page. Both limits together are shorter than the script's timeout (`live.js`).
const READING_PATIENCE: Duration = Duration::from_secs(4);

/// Checks that the database answers.
pub(crate) async fn answers(system: &System) -> Result<(), DbErr> {
    let query = system.database().reader().execute_unprepared("SELECT 1");
    by(Instant::now() + ANSWER_PATIENCE, query).await.map(|_| ())
}

/// Deadline of all queries of one page.
pub(crate) fn soon() -> Instant {
    Instant::now() + READING_PATIENCE
}

/// Result of a query, or an error if it is not complete by the deadline.
pub(crate) async fn by<T>(deadline: Instant, reading: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    let late = || DbErr::Conn(RuntimeErr::Internal("no answer in time".to_owned()));
    tokio::time::timeout_at(deadline, reading).await.unwrap_or_else(|_| Err(late()))
}

/// Result of a query, or `None` with a log line if it failed or is not complete by the deadline.
pub(crate) async fn if_by<T>(
    deadline: Instant,
    what: &str,
    reading: impl Future<Output = Result<T, DbErr>>,
) -> Option<T> {
    let read = by(deadline, reading).await;
    read.inspect_err(|error| tracing::warn!(%error, "reading {what} for the operator failed: {error}")).ok()
}

/// Rows of a query.
pub(crate) async fn rows<M: FromQueryResult>(
    database: &Database,
    sql: String,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<M>, DbErr> {
    let statement = Statement::from_sql_and_values(database.backend(), sql, values);
    M::find_by_statement(statement).all(database.reader()).await
}

/// Maximum number of rows that are counted. More are shown as "more than" this number.
pub const COUNTED_MAX: u64 = 10_000;

/// Count with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, derive_more::Display, Serialize, ToSchema)]
#[display("{}{counted}", if self.more { "more than " } else { "" })]
pub struct Count {
    /// Number of rows, at most [`COUNTED_MAX`] for a single count.
    pub counted: u64,
    /// True if there are more rows than were counted.
    pub more: bool,
}

impl Count {
    /// Count of a query that was limited to one more than [`COUNTED_MAX`].
    pub fn of(counted: i64) -> Self {
        let counted = u64::try_from(counted).unwrap_or(0);
        Self { counted: counted.min(COUNTED_MAX), more: counted > COUNTED_MAX }
    }

    /// Counts the rows of a query, up to the limit. `from` is the query from its `FROM` on.
    pub(crate) async fn rows<const N: usize>(
        database: &Database,
        from: &str,
        values: [Value; N],
    ) -> Result<Self, DbErr> {
        let sql = format!("SELECT COUNT(*) FROM (SELECT 1 {from} LIMIT {}) counted", COUNTED_MAX + 1);
        Self::read(database, Statement::from_sql_and_values(database.backend(), sql, values)).await
    }

    /// Reads the count that a statement returns.
    pub(crate) async fn read(database: &Database, statement: Statement) -> Result<Self, DbErr> {
        let row = database.reader().query_one_raw(statement).await?;
        Ok(Self::of(row.map_or(Ok(0), |row| row.try_get_by_index(0))?))
    }

    /// Sum of two counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { counted: self.counted + other.counted, more: self.more || other.more }
    }
}

/// A new database for the tests of queries.
#[cfg(test)]
pub(crate) async fn test_database() -> (Database, payferry_harness::database::TestDatabase) {
    let test_database = payferry_harness::database::TestDatabase::sqlite();
    (Database::open(test_database.url()).await.unwrap(), test_database)
}
