//! What failures of the layers below mean to a caller. They know no HTTP; here it is decided once.

use payferry_actors::payment::store::StoreError;
use payferry_actors::{CommandError, InitiateError};
use payferry_domain::payment::Rejection;
use sea_orm::sqlx::Error as SqlxError;
use sea_orm::{DbErr, RuntimeErr, SqlErr};

use super::{ApiError, Away};

/// SQLSTATE classes in which PostgreSQL tells of itself: connection, contention, resources, intervention, system.
const POSTGRES_AWAY_CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
/// SQLSTATEs of other classes that tell of it, too: a standby that only reads, and a lock that was not free in time.
const POSTGRES_AWAY_CODES: [&str; 2] = ["25006", "55P03"];
/// SQLite's primary codes: PERM, BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL,
/// NOTADB.
const SQLITE_AWAY: [u32; 12] = [3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26];

impl From<DbErr> for ApiError {
    fn from(error: DbErr) -> Self {
        if matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) {
            let detail = "Another request changed the same thing at the same moment; try again.".to_owned();
            return Self::Conflict("concurrent_change", detail, Vec::new());
        }
        if is_away(&error) {
            return Self::Unavailable(Away::Database, error.to_string().into());
        }
        Self::internal(error)
    }
}

/// Whether the database is away, full or too busy, rather than asked for something wrong.
fn is_away(error: &DbErr) -> bool {
    match error {
        DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => true,
        DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) => match &**error {
            SqlxError::Database(error) => says_away(&error.code().unwrap_or_default()),
            SqlxError::Io(_)
            | SqlxError::Tls(_)
            | SqlxError::Protocol(_)
            | SqlxError::PoolTimedOut
            | SqlxError::PoolClosed
            | SqlxError::WorkerCrashed
            | SqlxError::BeginFailed => true,
            _ => false,
        },
        _ => false,
    }
}

/// A SQLSTATE has five characters; SQLite's codes are numbers, the primary one in the low byte.
fn says_away(code: &str) -> bool {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => SQLITE_AWAY.contains(&(number & 0xff)),
        _ => POSTGRES_AWAY_CODES.contains(&code) || POSTGRES_AWAY_CLASSES.iter().any(|class| code.starts_with(class)),
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database(error) => error.into(),
            StoreError::Unreadable { .. } => Self::internal(error),
        }
    }
}

impl From<serde_json::Error> for ApiError {
    /// Of writing an answer; reading a body has its own error.
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        Self::Conflict(rejection.code(), sentence(&rejection.to_string()), Vec::new())
    }
}

impl From<InitiateError> for ApiError {
    /// `IdempotencyKeyTaken` is for the idempotency module to answer before this.
    fn from(error: InitiateError) -> Self {
        let reason = error.to_string();
        match error {
            InitiateError::TokenUnavailable { .. } => Self::TokenUnavailable(sentence(&reason)),
            InitiateError::ChainAway { .. } => Self::Unavailable(Away::Chain, reason.into()),
            InitiateError::CustomerRequired => {
                Self::field("customer_id", "required", "is required by this account's settings")
            }
            InitiateError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            InitiateError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            InitiateError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
            InitiateError::Unknown(_) => Self::TimedOut,
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        let reason = error.to_string();
        match error {
            CommandError::NotFound => Self::NotFound("payment"),
            CommandError::Rejected(rejection) => rejection.into(),
            CommandError::Quarantined => Self::Unavailable(Away::Payment, reason.into()),
            CommandError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            CommandError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
        }
    }
}

/// `text` with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).chain(std::iter::once('.')).collect()
}

#[cfg(test)]
mod tests {
    use super::says_away;

    #[test]
    fn databases_say_that_they_are_away_rather_than_asked_something_wrong() {
        for away in ["08006", "40001", "40P01", "53300", "55P03", "57P01", "57014", "25006", "5", "517", "13", "10"] {
            assert!(says_away(away), "{away}");
        }
        for wrong in ["42P01", "42601", "22021", "23505", "25P02", "1", "19", "2067", ""] {
            assert!(!says_away(wrong), "{wrong}");
        }
    }
}
