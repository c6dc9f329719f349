//! Operators of the operator's listener: their roles, tokens and sessions.
//!
//! The shared token of the configuration belongs to the operator [`ADMIN`], who has no row. The database stores only
//! keyed hashes of tokens and sessions. A session is valid as long as the token that opened it, at most
//! [`SESSION_SECS`].

use std::str::FromStr;

use payferry_domain::Timestamp;
use payferry_entities::{Database, Transaction, operator_sessions, operators};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_runtime::request;
use payferry_runtime::seal::Sealer;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, Set,
};
use serde_json::json;
use subtle::ConstantTimeEq;

/// Name of the operator whose token is in the configuration.
pub const ADMIN: &str = "admin";
/// Maximum number of operators, revoked ones included.
pub const OPERATORS_MAX: u64 = 500;
/// Maximum length of an operator's name, in characters.
pub const OPERATOR_NAME_CHARS_MAX: usize = 40;
/// Lifetime of a session.
pub const SESSION_SECS: i64 = 12 * 3_600;
/// Random bytes of a token or session id.
const SECRET_BYTES: usize = 32;
/// Hexadecimal digits of the tag behind them.
const TAG_CHARS: usize = 32;

payferry_domain::named! {
    /// Permissions of an operator. Each role includes the ones before it.
    OperatorRole, "viewer, operator or admin" {
        /// Reads everything.
        Viewer = "viewer",
        /// Does everyday work: pauses, releases, decisions.
        Operator = "operator",
        /// Changes limits, wallets, keys and PSPs.
        Admin = "admin",
    }
}

/// Name of an operator, as in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub struct OperatorName(String);

/// Error for a text that is not a name of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 1 to {OPERATOR_NAME_CHARS_MAX} of the characters a-z, 0-9, `.`, `_` and `-`, and not `{ADMIN}`, the holder \
     of the shared token"
)]
pub struct InvalidOperatorName;

impl FromStr for OperatorName {
    type Err = InvalidOperatorName;

    fn from_str(text: &str) -> Result<Self, InvalidOperatorName> {
        let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        let is_name = (1..=OPERATOR_NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_name && text != ADMIN { Ok(Self(text.to_owned())) } else { Err(InvalidOperatorName) }
    }
}

/// An operator without the token.
#[derive(Debug, Clone)]
pub struct OperatorRecord {
    /// Name in the audit log.
    pub name: String,
    /// Permissions.
    pub role: OperatorRole,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of revocation, if the operator was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Error of an operation on an operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// There is an active operator of this name.
    #[error("there is already an operator {0}; revoke it first to replace its token or role")]
    Taken(OperatorName),
    /// There is no operator of this name.
    #[error("there is no operator {0}")]
    Unknown(OperatorName),
    /// There are [`OPERATORS_MAX`] operators.
    #[error("there are already {OPERATORS_MAX} operators, revoked ones included")]
    TooMany,
    /// The database is unavailable, or a row cannot be read.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
}

/// Credential of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorCredential {
    /// The token.
    Token,
    /// A session of the pages.
    Session,
}

impl OperatorCredential {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Token => "op_",
            Self::Session => "os_",
        }
    }

    const fn label(self) -> &'static [u8] {
        match self {
            Self::Token => b"operator token",
            Self::Session => b"operator session",
        }
    }

    /// Generates one. It is shown once; only its hash is stored.
    fn generate(self, sealer: &Sealer) -> String {
        let random = hex::encode(rand::random::<[u8; SECRET_BYTES]>());
        let body = format!("{}{random}", self.prefix());
        let tag = self.tag(&body, sealer);
        body + &tag
    }

    /// Returns true if this service generated the text, in constant time and without the database.
    pub fn is_genuine(self, text: &str, sealer: &Sealer) -> bool {
        let split = text.split_at_checked(self.prefix().len() + 2 * SECRET_BYTES);
        split.is_some_and(|(body, tag)| self.tag(body, sealer).as_bytes().ct_eq(tag.as_bytes()).into())
    }

    /// Hash to store and to look up.
    pub fn hash(self, text: &str, sealer: &Sealer) -> String {
        sealer.keyed_hash(&[self.label(), text.as_bytes()])
    }

    fn tag(self, body: &str, sealer: &Sealer) -> String {
        let mut tag = sealer.keyed_hash(&[b"tag", self.label(), body.as_bytes()]);
        tag.truncate(TAG_CHARS);
        tag
    }
}

/// Creates an operator and returns the token. The name of a revoked operator can be used again, with a new token.
pub async fn create(
    database: &Database,
    sealer: &Sealer,
    name: OperatorName,
    role: OperatorRole,
    now: Timestamp,
) -> Result<String, OperatorError> {
    let token = OperatorCredential::Token.generate(sealer);
    let transaction = database.begin().await?;
    let old = operators::Entity::find_by_id(&name.0).lock_exclusive().one(&transaction).await?;
    match old {
        Some(old) if old.revoked_at.is_none() => return Err(OperatorError::Taken(name)),
        Some(_) => operators::Entity::delete_by_id(&name.0).exec(&transaction).await.map(|_| ())?,
        None if operators::Entity::find().count(&transaction).await? >= OPERATORS_MAX => {
            return Err(OperatorError::TooMany);
        }
        None => {}
    }
    let row = operators::Model {
        name: name.0.clone(),
        role: role.as_str().to_owned(),
        token_hash: OperatorCredential::Token.hash(&token, sealer),
        created_at: now.as_millis(),
        revoked_at: None,
    };
    operators::Entity::insert(row.into_active_model()).exec_without_returning(&transaction).await?;
    write_down(&transaction, "operator.created", &name.0, json!({ "role": role }), now).await?;
    transaction.commit().await?;
    Ok(token)
}

/// Lists all operators with a row, by name.
pub async fn list(database: &Database) -> Result<Vec<OperatorRecord>, OperatorError> {
    let rows = operators::Entity::find().order_by_asc(operators::Column::Name).limit(OPERATORS_MAX);
    let rows = rows.all(database.reader()).await?;
    Ok(rows.into_iter().map(record).collect::<Result<_, _>>()?)
}

/// Revokes an operator and ends its sessions. Idempotent: the first revocation's time stays.
pub async fn revoke(database: &Database, name: OperatorName, now: Timestamp) -> Result<OperatorRecord, OperatorError> {
    let transaction = database.begin().await?;
    let row = operators::Entity::find_by_id(&name.0).lock_exclusive().one(&transaction).await?;
    let row = row.ok_or_else(|| OperatorError::Unknown(name.clone()))?;
    if row.revoked_at.is_some() {
        return Ok(record(row)?);
    }
    let of_token = operator_sessions::Column::TokenHash.eq(&row.token_hash);
    operator_sessions::Entity::delete_many().filter(of_token).exec(&transaction).await?;
    let mut row = row.into_active_model();
    row.revoked_at = Set(Some(now.as_millis()));
    let revoked = record(row.update(&transaction).await?)?;
    write_down(&transaction, "operator.revoked", &name.0, json!({}), now).await?;
    transaction.commit().await?;
    Ok(revoked)
}

/// Returns the operator with this token, unless it is revoked.
pub async fn find(database: &Database, token_hash: &str) -> Result<Option<OperatorRecord>, DbErr> {
    let row = operators::Entity::find()
        .filter(operators::Column::TokenHash.eq(token_hash))
        .filter(operators::Column::RevokedAt.is_null());
    row.one(database.reader()).await?.map(record).transpose()
}

/// Opens a session of the operator with this name and token, and returns its id. Deletes sessions that are over.
pub async fn open_session(
    database: &Database,
    sealer: &Sealer,
    name: &str,
    token_hash: String,
    now: Timestamp,
) -> Result<String, DbErr> {
    let session = OperatorCredential::Session.generate(sealer);
    let row = operator_sessions::Model {
        session_hash: OperatorCredential::Session.hash(&session, sealer),
        token_hash,
        ends_at: now.plus_secs(SESSION_SECS).as_millis(),
    };
    let transaction = database.begin().await?;
    let is_over = operator_sessions::Column::EndsAt.lte(now.as_millis());
    operator_sessions::Entity::delete_many().filter(is_over).exec(&transaction).await?;
    operator_sessions::Entity::insert(row.into_active_model()).exec_without_returning(&transaction).await?;
    let written = write_down(&transaction, "operator.logged_in", name, json!({}), now);
    request::sent_by(name.to_owned(), None, written).await?;
    transaction.commit().await?;
    Ok(session)
}

/// Returns the hash of the token that opened this session, unless the session is over.
pub async fn session_token(database: &Database, session_hash: &str, now: Timestamp) -> Result<Option<String>, DbErr> {
    let row = operator_sessions::Entity::find_by_id(session_hash).one(database.reader()).await?;
    Ok(row.filter(|row| row.ends_at > now.as_millis()).map(|row| row.token_hash))
}

/// Ends the session of the operator with this name.
pub async fn end_session(database: &Database, session_hash: &str, name: &str, now: Timestamp) -> Result<(), DbErr> {
    let transaction = database.begin().await?;
    operator_sessions::Entity::delete_by_id(session_hash).exec(&transaction).await?;
    write_down(&transaction, "operator.logged_out", name, json!({}), now).await?;
    transaction.commit().await
}

async fn write_down(
    transaction: &Transaction,
    action: &str,
    name: &str,
    detail: serde_json::Value,
    now: Timestamp,
) -> Result<(), DbErr> {
    let entry = NewAuditEntry { action: action.to_owned(), psp_id: None, subject: name.to_owned(), detail };
    audit::append(transaction, &Actor::Operator, now, vec![entry]).await
}

fn record(row: operators::Model) -> Result<OperatorRecord, DbErr> {
    let operators::Model { name, role, token_hash: _, created_at, revoked_at } = row;
    let role = role.parse().map_err(|_| DbErr::Custom(format!("the role of the operator {name} cannot be read")))?;
    Ok(OperatorRecord { name, role, created_at: Timestamp(created_at), revoked_at: revoked_at.map(Timestamp) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_operators_are_validated() {
        for good in ["alice", "a", "j.doe-2_x", &"x".repeat(OPERATOR_NAME_CHARS_MAX)] {
            assert_eq!(good.parse::<OperatorName>().unwrap().to_string(), good);
        }
        for bad in ["", "Alice", "a b", "é", ADMIN, "a\n", &"x".repeat(OPERATOR_NAME_CHARS_MAX + 1)] {
            assert_eq!(bad.parse::<OperatorName>(), Err(InvalidOperatorName), "{bad:?}");
        }
    }

    #[test]
    fn only_a_generated_credential_of_the_same_kind_and_key_is_genuine() {
        use OperatorCredential::{Session, Token};
        let sealer = Sealer::new(&[3; 32]);
        let token = Token.generate(&sealer);
        assert!(Token.is_genuine(&token, &sealer) && token.starts_with("op_"), "{token}");
        assert!(!Session.is_genuine(&token, &sealer));
        assert!(!Session.is_genuine(&token.replacen("op_", "os_", 1), &sealer));
        assert!(!Token.is_genuine(&token, &Sealer::new(&[4; 32])));
        assert_ne!(Token.generate(&sealer), token);
        let other = if token.ends_with('0') { '1' } else { '0' };
        for bad in ["", "op_", "é", &token[..token.len() - 1], &format!("{}{other}", &token[..token.len() - 1])] {
            assert!(!Token.is_genuine(bad, &sealer), "{bad}");
        }
    }
}
