//! What an error of the database means to whoever asked for something.

use std::borrow::Cow;

use sea_orm::error::ConnAcquireErr;
use sea_orm::sqlx::Error as SqlxError;
use sea_orm::{DbErr, RuntimeErr};

/// Who or what is to blame for an error, and so whether it helps to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another writer was in the way, and nothing was changed: the same again may succeed at once.
    Contention,
    /// The database is away, full or broken: the same again may succeed later.
    Away,
    /// What was asked for is to blame: the same again fails again.
    Request,
}

/// SQLSTATE classes in which PostgreSQL tells of itself, not of the statement: connection, roll-back, resources, operator
/// intervention, system error.
const POSTGRES_AWAY_CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
/// PostgreSQL: a standby, which only reads.
const POSTGRES_READ_ONLY: &str = "25006";
/// PostgreSQL: serialization failure, deadlock, lock not available.
const POSTGRES_CONTENTION: [&str; 3] = ["40001", "40P01", "55P03"];
/// SQLite's primary codes: PERM, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB.
const SQLITE_AWAY: [u32; 10] = [3, 7, 8, 9, 10, 11, 13, 14, 15, 26];
/// SQLite's primary codes: BUSY, LOCKED.
const SQLITE_CONTENTION: [u32; 2] = [5, 6];

/// What is said where all connections are taken.
const NO_CONNECTION: &str = "no connection to it was free in time";

impl Failure {
    /// What `error` means. Of an error of a commit, only [`Self::Contention`] is certain: every other leaves open whether
    /// the commit was made.
    pub fn of(error: &DbErr) -> Self {
        match error {
            DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => Self::Away,
            DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) => {
                Self::of_sqlx(error)
            }
            _ => Self::Request,
        }
    }

    /// The error in words for whoever operates the service. Nothing stands in them of what was asked for, nor of where the
    /// database is.
    pub fn words(error: &DbErr) -> Cow<'static, str> {
        match error {
            DbErr::ConnectionAcquire(ConnAcquireErr::Timeout) => NO_CONNECTION.into(),
            DbErr::Conn(RuntimeErr::SqlxError(error))
            | DbErr::Exec(RuntimeErr::SqlxError(error))
            | DbErr::Query(RuntimeErr::SqlxError(error)) => match &**error {
                SqlxError::Database(error) => Self::words_of_code(&error.code().unwrap_or_default()),
                SqlxError::PoolTimedOut => NO_CONNECTION.into(),
                _ => "the connection to it failed".into(),
            },
            _ => "the connection to it failed".into(),
        }
    }

    fn words_of_code(code: &str) -> Cow<'static, str> {
        let primary = if code.len() < 5 { code.parse::<u32>().ok().map(|number| number & 0xff) } else { None };
        let words = match (primary, code) {
            (Some(5 | 6), _) | (None, "55P03") => "somebody else holds a lock",
            (Some(13), _) | (None, "53100") => "its disk is full",
            (Some(8), _) | (None, POSTGRES_READ_ONLY) => "it can only be read",
            (Some(10), _) => "its disk fails",
            (Some(14), _) => "its file cannot be opened",
            (Some(11 | 26), _) => "its file is damaged",
            (None, "53300") => "it takes no more connections",
            (None, "57014") => "it took too long",
            (None, "57P01" | "57P02" | "57P03") => "it is stopping or starting",
            _ => return format!("it failed with the code {code}").into(),
        };
        words.into()
    }

    /// Whether opening took too long, or somebody was in the way: nothing is known to be wrong.
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

    /// A SQLSTATE has five characters; SQLite's codes are numbers of at most four, the primary one in the low byte.
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

#[cfg(test)]
mod tests {
    use sea_orm::DbErr;

    use super::Failure;

    #[test]
    fn words_tell_what_is_wrong_and_nothing_of_what_was_asked() {
        for (code, words) in [
            ("5", "somebody else holds a lock"),
            ("517", "somebody else holds a lock"),
            ("55P03", "somebody else holds a lock"),
            ("13", "its disk is full"),
            ("53100", "its disk is full"),
            ("266", "its disk fails"),
            ("25006", "it can only be read"),
            ("57P01", "it is stopping or starting"),
            ("58030", "it failed with the code 58030"),
        ] {
            assert_eq!(Failure::words_of_code(code), words, "{code}");
        }
        let secret = DbErr::Custom("postgres://payferry:hunter2@db/payferry".to_owned());
        assert_eq!(Failure::words(&secret), "the connection to it failed");
    }

    #[test]
    fn databases_tell_of_themselves_or_of_what_was_asked() {
        for code in ["40001", "40P01", "55P03", "5", "6", "517"] {
            assert_eq!(Failure::of_code(code), Failure::Contention, "{code}");
        }
        for code in ["08006", "40003", "53100", "53300", "57P01", "57014", "58030", "25006", "13", "10", "266"] {
            assert_eq!(Failure::of_code(code), Failure::Away, "{code}");
        }
        for code in ["42P01", "42601", "22021", "23505", "25P02", "1", "19", "2067", ""] {
            assert_eq!(Failure::of_code(code), Failure::Request, "{code}");
        }
    }
}
