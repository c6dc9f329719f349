//! The audit log: who did what. Entries are written in the commit of what they tell of, and only ever added.

use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_entities::audit_log;
use sea_orm::{ActiveValue, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel};
use serde_json::Value;

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A PSP, with this key.
    ApiKey(KeyId),
    /// Whoever holds the operator's token.
    Operator,
    /// An identity provider.
    Provider(String),
    /// The customer itself, on the consent page.
    Customer,
    /// Payferry, by itself.
    Service,
}

impl Actor {
    /// The kinds, as they stand in the log.
    pub const KINDS: [&str; 5] = ["api_key", "operator", "provider", "customer", "service"];

    /// Which kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => Self::KINDS[0],
            Self::Operator => Self::KINDS[1],
            Self::Provider(_) => Self::KINDS[2],
            Self::Customer => Self::KINDS[3],
            Self::Service => Self::KINDS[4],
        }
    }

    /// Which of its kind; empty where there is only one.
    pub fn name(&self) -> String {
        match self {
            Self::ApiKey(id) => id.to_string(),
            Self::Provider(name) => name.clone(),
            Self::Operator | Self::Customer | Self::Service => String::new(),
        }
    }
}

/// One thing that was done.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What, such as `customer.approved`.
    pub action: String,
    /// Whose object it was done to.
    pub psp_id: Option<PspId>,
    /// The id of that object.
    pub subject: String,
    /// What else is to be known. Never personal data.
    pub detail: Value,
}

/// The row of an entry before it has its number.
pub fn row(entry: Entry, by: &Actor, at: Timestamp) -> audit_log::Model {
    audit_log::Model {
        number: 0,
        at: at.as_millis(),
        actor_kind: by.kind().to_owned(),
        actor: by.name(),
        action: entry.action,
        psp_id: entry.psp_id.map(|id| id.to_string()),
        subject: entry.subject,
        detail: entry.detail.to_string(),
    }
}

/// Adds entries, in this order.
pub async fn append(
    connection: &impl ConnectionTrait,
    by: &Actor,
    at: Timestamp,
    entries: Vec<Entry>,
) -> Result<(), DbErr> {
    if entries.is_empty() {
        return Ok(());
    }
    let rows = entries.into_iter().map(|entry| {
        // The database numbers them.
        audit_log::ActiveModel { number: ActiveValue::NotSet, ..row(entry, by, at).into_active_model() }
    });
    audit_log::Entity::insert_many(rows).exec_without_returning(connection).await?;
    Ok(())
}
