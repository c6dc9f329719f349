//! Reads the audit log for the operator's listener and the command line.
//!
//! `payferry_journal::audit` writes entries, in the commit of the change that they record.

use std::fmt;

use payferry_domain::{PspId, Timestamp};
use payferry_entities::audit_log::{Column, Entity, Model};
use payferry_journal::audit::Actor;
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait};
use serde::Serialize;
use serde_json::Value;

use crate::Moment;

/// Default number of entries in a page.
pub const ENTRIES_DEFAULT: u64 = 50;
/// Maximum number of entries in a page.
pub const ENTRIES_MAX: u64 = 500;
/// Maximum length of a subject or an action to search for, in characters.
pub const WORD_CHARS_MAX: usize = 100;

/// Filter of entries; `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Id of the affected object, such as a customer's.
    pub subject: Option<String>,
    /// The PSP that owns the object.
    pub psp_id: Option<PspId>,
    /// Kind of the actor.
    pub actor_kind: Option<AuditActorKind>,
    /// The action, such as `customer.deactivated`.
    pub action: Option<String>,
    /// At or after this time.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub to: Option<Timestamp>,
    /// After the entry with this number.
    pub after: Option<i64>,
}

/// A kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditActorKind(&'static str);

/// The error for an unknown kind of actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", Actor::KINDS.join(", "))]
pub struct UnknownAuditActorKind;

impl std::str::FromStr for AuditActorKind {
    type Err = UnknownAuditActorKind;

    fn from_str(text: &str) -> Result<Self, UnknownAuditActorKind> {
        Actor::KINDS.into_iter().find(|kind| *kind == text).map(Self).ok_or(UnknownAuditActorKind)
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Position in the log; the value for `after`.
    pub number: i64,
    /// Time of the action.
    pub at: Moment,
    /// `api_key`, `operator`, `provider`, `customer` or `service`.
    pub actor_kind: String,
    /// The actor's id, such as a key's id or an operator's name; empty if there is only one actor of the kind, and for
    /// operators on the command line.
    pub actor: String,
    /// The action.
    pub action: String,
    /// The PSP that owns the object.
    pub psp_id: Option<String>,
    /// Id of the affected object.
    pub subject: String,
    /// Further details.
    pub detail: Value,
    /// Address of the client that sent the request; `None` if there was no request.
    pub address: Option<String>,
    /// Id of the request, as in the log and in `X-Request-Id`.
    pub request_id: Option<String>,
}

/// Entries in the order of writing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// Number of the last entry, if there may be more after it.
    pub next_after: Option<i64>,
}

/// Reads the entries about one object, oldest first.
pub async fn of_subject(connection: &impl ConnectionTrait, subject: String) -> Result<Vec<AuditEntry>, DbErr> {
    let filter = Filter { subject: Some(subject), ..Filter::default() };
    Ok(read(connection, &filter, ENTRIES_MAX).await?.entries)
}

/// Reads a page, oldest first.
pub async fn read(connection: &impl ConnectionTrait, filter: &Filter, limit: u64) -> Result<AuditPage, DbErr> {
    let Filter { subject, psp_id, actor_kind, action, from, to, after } = filter;
    let query = Entity::find()
        .apply_if(subject.as_deref(), |query, subject| query.filter(Column::Subject.eq(subject)))
        .apply_if(*psp_id, |query, psp_id| query.filter(Column::PspId.eq(psp_id.to_string())))
        .apply_if(*actor_kind, |query, AuditActorKind(kind)| query.filter(Column::ActorKind.eq(kind)))
        .apply_if(action.as_deref(), |query, action| query.filter(Column::Action.eq(action)))
        .apply_if(*from, |query, from| query.filter(Column::At.gte(from.as_millis())))
        .apply_if(*to, |query, to| query.filter(Column::At.lt(to.as_millis())))
        .apply_if(*after, |query, after| query.filter(Column::Number.gt(after)))
        .order_by_asc(Column::Number)
        .limit(limit);
    let entries: Vec<AuditEntry> = query.all(connection).await?.into_iter().map(AuditEntry::from).collect();
    let is_full = entries.len() as u64 == limit;
    let next_after = entries.last().filter(|_| is_full).map(|entry| entry.number);
    Ok(AuditPage { entries, next_after })
}

impl From<Model> for AuditEntry {
    fn from(row: Model) -> Self {
        let Model { number, at, actor_kind, actor, action, psp_id, subject, detail, address, request_id } = row;
        // Shows invalid JSON as text, since the audit log must not hide anything.
        let detail = serde_json::from_str(&detail).unwrap_or(Value::String(detail));
        let at = Moment(Timestamp(at));
        Self { number, at, actor_kind, actor, action, psp_id, subject, detail, address, request_id }
    }
}

/// One line of a table.
impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, at, actor_kind, actor, action, psp_id, subject, detail, address, .. } = self;
        let by = if actor.is_empty() { actor_kind.clone() } else { format!("{actor_kind} {actor}") };
        let psp = psp_id.as_deref().unwrap_or("-");
        let address = address.as_deref().unwrap_or("-");
        write!(f, "{number:>8}  {at}  {by:<38}  {address:<15}  {action:<28}  {subject:<29}  {psp:<30}  {detail}")
    }
}
