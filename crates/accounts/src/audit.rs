//! Reads the audit log: the operator's listener and the command line do it here.
//!
//! Deliberately absent: writing, which is done in the commit of what an entry tells of (`payferry_actors::customers::audit`).

use std::fmt;

use payferry_actors::customers::audit::Actor;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::audit_log::{Column, Entity, Model};
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use serde_json::Value;

use crate::Moment;

/// Entries of a page, unless the reader says otherwise.
pub const ENTRIES_DEFAULT: u64 = 50;
/// Entries of a page at most.
pub const ENTRIES_MAX: u64 = 500;
/// Characters of a subject or an action that is looked for.
pub const WORD_CHARS_MAX: usize = 100;

/// Which entries; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The id of what something was done to, such as a customer's.
    pub subject: Option<String>,
    /// Whose object it is.
    pub psp_id: Option<PspId>,
    /// What kind of actor did it.
    pub actor_kind: Option<ActorKind>,
    /// What was done, such as `customer.deactivated`.
    pub action: Option<String>,
    /// Not before this moment.
    pub from: Option<Timestamp>,
    /// Before this moment.
    pub to: Option<Timestamp>,
    /// After the entry with this number.
    pub after: Option<i64>,
}

/// A kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActorKind(&'static str);

/// Not a kind of actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", Actor::KINDS.join(", "))]
pub struct UnknownActorKind;

impl std::str::FromStr for ActorKind {
    type Err = UnknownActorKind;

    fn from_str(text: &str) -> Result<Self, UnknownActorKind> {
        Actor::KINDS.into_iter().find(|kind| *kind == text).map(Self).ok_or(UnknownActorKind)
    }
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its place in the log; what `after` takes.
    pub number: i64,
    /// When.
    pub at: Moment,
    /// `api_key`, `operator`, `provider`, `customer` or `service`.
    pub actor_kind: String,
    /// Which of its kind: the key's id, the provider's name; empty where there is only one.
    pub actor: String,
    /// What.
    pub action: String,
    /// Whose object it was done to.
    pub psp_id: Option<String>,
    /// That object.
    pub subject: String,
    /// What else is to be known.
    pub detail: Value,
}

/// Entries in the order of writing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Them.
    pub entries: Vec<Entry>,
    /// The last one's number, if there may be more after it.
    pub next_after: Option<i64>,
}

/// Reads a page, the oldest first.
pub async fn read(connection: &impl ConnectionTrait, filter: &Filter, limit: u64) -> Result<Page, DbErr> {
    let Filter { subject, psp_id, actor_kind, action, from, to, after } = filter;
    let mut query = Entity::find().order_by_asc(Column::Number).limit(limit);
    if let Some(subject) = subject {
        query = query.filter(Column::Subject.eq(subject));
    }
    if let Some(psp_id) = psp_id {
        query = query.filter(Column::PspId.eq(psp_id.to_string()));
    }
    if let Some(ActorKind(kind)) = actor_kind {
        query = query.filter(Column::ActorKind.eq(*kind));
    }
    if let Some(action) = action {
        query = query.filter(Column::Action.eq(action));
    }
    if let Some(from) = from {
        query = query.filter(Column::At.gte(from.as_millis()));
    }
    if let Some(to) = to {
        query = query.filter(Column::At.lt(to.as_millis()));
    }
    if let Some(after) = after {
        query = query.filter(Column::Number.gt(*after));
    }
    let entries: Vec<Entry> = query.all(connection).await?.into_iter().map(Entry::from).collect();
    let is_full = entries.len() as u64 == limit;
    let next_after = entries.last().filter(|_| is_full).map(|entry| entry.number);
    Ok(Page { entries, next_after })
}

impl From<Model> for Entry {
    fn from(row: Model) -> Self {
        let Model { number, at, actor_kind, actor, action, psp_id, subject, detail } = row;
        // What is not JSON is shown as it stands: an audit log hides nothing.
        let detail = serde_json::from_str(&detail).unwrap_or(Value::String(detail));
        Self { number, at: Moment(Timestamp(at)), actor_kind, actor, action, psp_id, subject, detail }
    }
}

/// A line of a table.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, at, actor_kind, actor, action, psp_id, subject, detail } = self;
        let by = if actor.is_empty() { actor_kind.clone() } else { format!("{actor_kind} {actor}") };
        let psp = psp_id.as_deref().unwrap_or("-");
        write!(f, "{number:>8}  {at}  {by:<38}  {action:<28}  {subject:<29}  {psp:<30}  {detail}")
    }
}
