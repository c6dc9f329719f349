//! Classification of database errors.

use std::borrow::Cow;

use sea_orm::error::ConnAcquireErr;
use sea_orm::{DbErr, RuntimeErr};
use sqlx::Error as SqlxError;

/// Cause of a database error, which determines whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseFailure {
    /// Another writer was in the way, and nothing changed. An immediate retry can succeed.
    Contention,
    /// The database is unavailable, full, or damaged. A later retry can succeed.
    Away,
    /// The request itself is wrong. A retry fails again.
    Request,
}

/// SQLSTATE classes about the state of the PostgreSQL server, not about the statement: connection, rollback, resources,
/// operator intervention, system error.
const POSTGRES_AWAY_CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
/// PostgreSQL: the server is a read-only standby.
const POSTGRES_READ_ONLY: &str = "25006";
/// PostgreSQL: serialization failure, deadlock, lock not available.
const POSTGRES_CONTENTION: [&str; 3] = ["40001", "40P01", "55P03"];
/// SQLite's primary codes: PERM, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB.
const SQLITE_AWAY: [u32; 10] = [3, 7, 8, 9, 10, 11, 13, 14, 15, 26];
/// SQLite's primary codes: BUSY, LOCKED.
const SQLITE_CONTENTION: [u32; 2] = [5, 6];

/// Text used when all connections are in use.
const NO_CONNECTION: &str = "no free connection in time";

impl DatabaseFailure {
    /// Classifies `error`. For an error of a commit only [`Self::Contention`] is certain; with any other, the commit
    /// may have succeeded.
    pub fn of(error: &DbErr) -> Self {
        match error {
            DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => Self::Away,
            DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) => {
                Self::of_sqlx(error)
            }
            _ => Self::Request,
        }
    }

    /// Describes the error for operators. The text contains neither data of the request nor the location of the
    /// database.
    pub fn words(error: &DbErr) -> Cow<'static, str> {
        if matches!(error, DbErr::ConnectionAcquire(ConnAcquireErr::Timeout)) {
            return NO_CONNECTION.into();
        }
        match driver_error(error) {
            Some(SqlxError::Database(error)) => Self::words_of_code(&error.code().unwrap_or_default()),
            Some(SqlxError::PoolTimedOut) => NO_CONNECTION.into(),
            _ => "the connection to it failed".into(),
        }
    }

    fn words_of_code(code: &str) -> Cow<'static, str> {
        let primary = if code.len() < 5 { code.parse::<u32>().ok().map(|number| number & 0xff) } else { None };
        let words = match (primary, code) {
            (Some(5 | 6), _) | (None, "55P03") => "another connection holds a lock",
            (Some(13), _) | (None, "53100") => "its disk is full",
            (Some(8), _) | (None, POSTGRES_READ_ONLY) => "it is read-only",
            (Some(10), _) => "its disk reports errors",
            (Some(14), _) => "its file cannot be opened",
            (Some(11 | 26), _) => "its file is damaged",
            (None, "53300") => "it has reached its connection limit",
            (None, "57014") => "the statement took too long",
            (None, "57P01" | "57P02" | "57P03") => "it is stopping or starting",
            _ => return format!("it failed with the code {code}").into(),
        };
        words.into()
    }

    /// Returns true if the server is a standby.
    pub(crate) fn is_standby(error: &DbErr) -> bool {
        let of_server = driver_error(error).and_then(SqlxError::as_database_error);
        of_server.is_some_and(|error| error.code().as_deref() == Some(POSTGRES_READ_ONLY))
    }

    /// Returns true if opening took too long or another process was in the way, so that there is no sign of a defect.
    pub(crate) fn is_delay(error: &DbErr) -> bool {
        let DbErr::Conn(RuntimeErr::SqlxError(error)) = error else {
            return matches!(error, DbErr::ConnectionAcquire(ConnAcquireErr::Timeout));
        };
        matches!(&**error, SqlxError::PoolTimedOut) || Self::of_sqlx(error) == Self::Contention
    }

    fn of_sqlx(error: &SqlxError) -> Self {
        match error {
            SqlxError::Database(error) => Self::of_code(&error.code().unwrap_or_default()),
            SqlxError::Io(_)
            | SqlxError::Tls(_)
            | SqlxError::Protocol(_)
            | SqlxError::PoolTimedOut
            | SqlxError::PoolClosed
            | SqlxError::WorkerCrashed
            | SqlxError::BeginFailed => Self::Away,
            _ => Self::Request,
        }
    }

    /// Classifies a code. A SQLSTATE has five characters. SQLite's codes are numbers with at most four digits; the low
    /// byte is the primary code.
    fn of_code(code: &str) -> Self {
        match code.parse::<u32>() {
            Ok(number) if code.len() < 5 => Self::of_sqlite(number & 0xff),
            _ if POSTGRES_CONTENTION.contains(&code) => Self::Contention,
            _ if code == POSTGRES_READ_ONLY => Self::Away,
            _ if POSTGRES_AWAY_CLASSES.iter().any(|class| code.starts_with(class)) => Self::Away,
            _ => Self::Request,
        }
    }

    fn of_sqlite(primary: u32) -> Self {
        if SQLITE_CONTENTION.contains(&primary) {
            Self::Contention
        } else if SQLITE_AWAY.contains(&primary) {
            Self::Away
        } else {
            Self::Request
        }
    }
}

fn driver_error(error: &DbErr) -> Option<&SqlxError> {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sea_orm::DbErr;

    use super::DatabaseFailure;

    #[test]
    fn error_descriptions_contain_no_request_data() {
        for (code, words) in [
            ("5", "another connection holds a lock"),
            ("517", "another connection holds a lock"),
            ("55P03", "another connection holds a lock"),
            ("13", "its disk is full"),
            ("53100", "its disk is full"),
            ("266", "its disk reports errors"),
            ("25006", "it is read-only"),
            ("57P01", "it is stopping or starting"),
            ("58030", "it failed with the code 58030"),
        ] {
            assert_eq!(DatabaseFailure::words_of_code(code), words, "{code}");
        }
        let secret = DbErr::Custom("postgres://payferry:hunter2@db/payferry".to_owned());
        assert_eq!(DatabaseFailure::words(&secret), "the connection to it failed");
    }

    #[test]
    fn classifies_errors_by_code() {
        for code in ["40001", "40P01", "55P03", "5", "6", "517"] {
            assert_eq!(DatabaseFailure::of_code(code), DatabaseFailure::Contention, "{code}");
        }
        for code in ["08006", "40003", "53100", "53300", "57P01", "57014", "58030", "25006", "13", "10", "266"] {
            assert_eq!(DatabaseFailure::of_code(code), DatabaseFailure::Away, "{code}");
        }
        for code in ["42P01", "42601", "22021", "23505", "25P02", "1", "19", "2067", ""] {
            assert_eq!(DatabaseFailure::of_code(code), DatabaseFailure::Request, "{code}");
        }
    }
}
