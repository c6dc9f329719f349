//! The audit log: who changed what. An entry is written in the commit of the change, and entries are only inserted.

pub mod chain;

use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_entities::audit_log;
use payferry_runtime::request;
use sea_orm::{ActiveValue, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel};
use serde_json::Value;

/// Actor of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A PSP, with this API key.
    ApiKey(KeyId),
    /// An operator, whose name is that of the current request or command.
    Operator,
    /// An identity provider.
    Provider(String),
    /// The customer, on the consent page.
    Customer,
    /// Payferry itself.
    Service,
}

impl Actor {
    /// Actor kinds, as stored in the log.
    pub const KINDS: [&str; 5] = ["api_key", "operator", "provider", "customer", "service"];

    /// Returns the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => Self::KINDS[0],
            Self::Operator => Self::KINDS[1],
            Self::Provider(_) => Self::KINDS[2],
            Self::Customer => Self::KINDS[3],
            Self::Service => Self::KINDS[4],
        }
    }

    /// Returns the name within the kind; empty if the kind has only one actor.
    pub fn name(&self) -> String {
        match self {
            Self::ApiKey(id) => id.to_string(),
            Self::Provider(name) => name.clone(),
            Self::Operator => request::current().and_then(|request| request.operator).unwrap_or_default(),
            Self::Customer | Self::Service => String::new(),
        }
    }
}

/// One audit entry.
#[derive(Debug, Clone)]
pub struct NewAuditEntry {
    /// Action, such as `customer.approved`.
    pub action: String,
    /// PSP that owns the subject.
    pub psp_id: Option<PspId>,
    /// Id of the changed object.
    pub subject: String,
    /// Details. Never contains personal data.
    pub detail: Value,
}

/// Returns the row of an entry, before it has a number. Takes the source, and the reason if the entry has none of its own, from
/// the request that this task answers.
pub fn row(mut entry: NewAuditEntry, by: &Actor, at: Timestamp) -> audit_log::Model {
    let request = request::current();
    if let (Some(reason), Some(detail)) = (request::reason(), entry.detail.as_object_mut()) {
        detail.entry("reason").or_insert_with(|| reason.into());
    }
    audit_log::Model {
        number: 0,
        at: at.as_millis(),
        actor_kind: by.kind().to_owned(),
        actor: by.name(),
        action: entry.action,
        psp_id: entry.psp_id.map(|id| id.to_string()),
        subject: entry.subject,
        detail: entry.detail.to_string(),
        address: request.as_ref().and_then(|request| request.address).map(|address| address.to_string()),
        request_id: request.and_then(|request| request.id),
    }
}

/// Inserts entries in this order.
pub async fn append(
    connection: &impl ConnectionTrait,
    by: &Actor,
    at: Timestamp,
    entries: Vec<NewAuditEntry>,
) -> Result<(), DbErr> {
    if entries.is_empty() {
        return Ok(());
    }
    let rows = entries.into_iter().map(|entry| {
        // The database assigns the number.
        audit_log::ActiveModel { number: ActiveValue::NotSet, ..row(entry, by, at).into_active_model() }
    });
    audit_log::Entity::insert_many(rows).exec_without_returning(connection).await?;
    Ok(())
}
