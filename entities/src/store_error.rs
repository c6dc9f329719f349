//! Errors of reading and writing rows, for every store.

use std::fmt;

use sea_orm::DbErr;

/// Error of reading rows, or of turning a value into rows.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not answer, or refused.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
    /// The row holds a value that this program does not write, or the value has no form as a row.
    #[error("{table} {id} cannot be read or written: {reason}")]
    Unreadable {
        /// Kind of row.
        table: &'static str,
        /// Id of the row.
        id: String,
        /// Cause.
        reason: String,
    },
}

/// Error of changing an object under a row lock; `R` is the reason for which the domain rejects a change.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError<R: fmt::Debug + fmt::Display> {
    /// There is no such object, or it belongs to another PSP.
    #[error("no such object")]
    NotFound,
    /// The domain rejects the change.
    #[error("{0}")]
    Rejected(R),
    /// A change would have violated an invariant, and no other is accepted before an operator releases the object.
    #[error("it is quarantined")]
    Quarantined,
    /// The rows cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreError {
    /// A row that cannot be read or written.
    pub fn unreadable(table: &'static str, id: &dyn fmt::Display, reason: &dyn fmt::Display) -> Self {
        Self::Unreadable { table, id: id.to_string(), reason: reason.to_string() }
    }
}

impl<R: fmt::Debug + fmt::Display> From<DbErr> for ChangeError<R> {
    fn from(error: DbErr) -> Self {
        Self::Store(error.into())
    }
}
