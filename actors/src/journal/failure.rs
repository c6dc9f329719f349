//! What an error of the database means for a group of units.

use sea_orm::sqlx::Error as SqlxError;
use sea_orm::{DbErr, RuntimeErr};

/// What to do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another writer was in the way: the same group again.
    Contention,
    /// The database is away, full or broken: no unit is to blame.
    Away,
    /// Some unit is to blame.
    Unit,
}

/// SQLSTATE classes in which PostgreSQL tells of itself, not of the statement: connection, resources, operator
/// intervention, system error.
const POSTGRES_AWAY_CLASSES: [&str; 4] = ["08", "53", "57", "58"];
/// PostgreSQL: serialization failure, deadlock, lock not available.
const POSTGRES_CONTENTION: [&str; 3] = ["40001", "40P01", "55P03"];
/// SQLite's primary codes: PERM, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB.
const SQLITE_AWAY: [u32; 10] = [3, 7, 8, 9, 10, 11, 13, 14, 15, 26];
/// SQLite's primary codes: BUSY, LOCKED.
const SQLITE_CONTENTION: [u32; 2] = [5, 6];

impl Failure {
    /// What `error`, met before the commit, means.
    pub(super) fn of(error: &DbErr) -> Self {
        match error {
            DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => Self::Away,
            DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) => {
                Self::of_sqlx(error)
            }
            _ => Self::Unit,
        }
    }

    fn of_sqlx(error: &SqlxError) -> Self {
        match error {
            SqlxError::Database(error) => {
                let code = error.code().unwrap_or_default();
                // A SQLSTATE has five characters; SQLite's codes are numbers of at most four, the primary one in the
                // low byte.
                match code.parse::<u32>() {
                    Ok(number) if code.len() < 5 => Self::of_sqlite(number & 0xff),
                    _ if POSTGRES_CONTENTION.contains(&code.as_ref()) => Self::Contention,
                    _ if POSTGRES_AWAY_CLASSES.iter().any(|class| code.starts_with(class)) => Self::Away,
                    _ => Self::Unit,
                }
            }
            SqlxError::Io(_)
            | SqlxError::Tls(_)
            | SqlxError::Protocol(_)
            | SqlxError::PoolTimedOut
            | SqlxError::PoolClosed
            | SqlxError::WorkerCrashed
            | SqlxError::BeginFailed => Self::Away,
            _ => Self::Unit,
        }
    }

    fn of_sqlite(primary: u32) -> Self {
        if SQLITE_CONTENTION.contains(&primary) {
            Self::Contention
        } else if SQLITE_AWAY.contains(&primary) {
            Self::Away
        } else {
            Self::Unit
        }
    }
}
