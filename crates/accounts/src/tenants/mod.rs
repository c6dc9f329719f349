//! PSPs and their API keys: creates, lists and changes them for the command line, the operator's listener and the
//! sandbox.
//!
//! The PSP API authenticates requests with keys. `payferry_journal::psps` caches PSPs and decides how soon a running
//! service applies a change.

mod api_keys;
mod psps;

use std::str::FromStr;

use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_entities::Transaction;
use payferry_journal::audit;
use payferry_journal::audit::{Actor, NewAuditEntry};
use sea_orm::ColumnTrait;
use sea_orm::sea_query::{Expr, ExprTrait as _, SimpleExpr};

pub use api_keys::{
    EXPIRES_DAYS_MAX, KeyMaker, KeyOrder, KeyRecord, KeyState, NewKey, ROTATION_OVERLAP_SECS,
    count_active as count_active_keys, create as create_key, create_in as create_key_in, find as find_key,
    has_other_full as has_other_full_key, list as list_keys, record as key_record, revoke as revoke_key,
    revoke_in as revoke_key_in, rotate_in as rotate_key_in,
};
pub use psps::{
    CheckoutChange, DEFAULT_WORD, LimitChange, OwnOrDefault, PolicyChange, PspRecord, change as change_psp,
    change_in as change_psp_in, create as create_psp, find as find_psp, list as list_psps, lock as lock_psp, psp_row,
};

/// Maximum length of a PSP's or key's name, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// A display name: not blank, without control characters, at most [`NAME_CHARS_MAX`] characters.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub struct Name(String);

/// Reason why a text is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is blank.
    #[error("must not be empty")]
    Empty,
    /// It is too long.
    #[error("may have at most {NAME_CHARS_MAX} characters")]
    TooLong,
    /// It contains a control character.
    #[error("must not contain control characters")]
    ControlCharacters,
}

/// Part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Maximum number of items.
    pub limit: u64,
    /// Items to skip.
    pub offset: u64,
    /// Time of creation and id of the item after which it begins, in a list that begins with the oldest.
    pub after: Option<(i64, String)>,
}

/// Condition for the rows after this time of creation and id.
fn newer<C: ColumnTrait>([created_at, id]: [C; 2], (at, after): (i64, String)) -> SimpleExpr {
    let columns = Expr::tuple([Expr::col(created_at), Expr::col(id)]);
    columns.gt(Expr::tuple([Expr::value(at), Expr::value(after)]))
}

/// Error of an operation on a PSP or a key.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// There is no PSP with this id.
    #[error("there is no PSP {0}")]
    NoPsp(PspId),
    /// There is no key with this id.
    #[error("there is no key {0}")]
    NoKey(KeyId),
    /// The key was revoked or has expired.
    #[error("{0} was revoked or has expired")]
    KeyNotActive(KeyId),
    /// A stored row does not have the expected format.
    #[error("{0} of {1} cannot be read")]
    Unreadable(&'static str, String),
    /// The database is unavailable.
    #[error("the database is not available: {0}")]
    Database(#[from] sea_orm::DbErr),
}

/// Writes an audit log entry of an action by the operator (on its listener, its page or the command line) or by a PSP.
async fn write_down(
    transaction: &Transaction,
    action: &str,
    psp_id: PspId,
    subject: String,
    detail: serde_json::Value,
    by: &Actor,
    now: Timestamp,
) -> Result<(), TenantError> {
    let entry = NewAuditEntry { action: action.to_owned(), psp_id: Some(psp_id), subject, detail };
    Ok(audit::append(transaction, by, now, vec![entry]).await?)
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.trim();
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(NameError::TooLong);
        }
        if name.chars().any(char::is_control) {
            return Err(NameError::ControlCharacters);
        }
        Ok(Self(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_validated() {
        assert_eq!("  Northern Pay ".parse(), Ok(Name("Northern Pay".to_owned())));
        assert_eq!(" ".parse::<Name>(), Err(NameError::Empty));
        assert_eq!("é".repeat(NAME_CHARS_MAX + 1).parse::<Name>(), Err(NameError::TooLong));
        assert_eq!("a\u{1b}[2Jb".parse::<Name>(), Err(NameError::ControlCharacters));
    }
}
