//! Entries that a named operator has acknowledged: they are listed apart and are not counted.
//!
//! An acknowledgement is for an entry at its position, which contains its time: if the same problem begins again, or the payment
//! changes, the entry is back.

use std::collections::{BTreeMap, HashMap};

use payferry_actors::System;
use payferry_domain::Timestamp;
use payferry_entities::acknowledgements::{Column, Entity, Model};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{Answer, ApiError, JsonBody, Problem, request, rule};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_runtime::request;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::Operator;
use crate::attention::{AttentionKind, Position};
use crate::input::unknown;
use crate::page::form::Sort;

/// Days after which an acknowledgement ends, and the entry is back if the problem still exists.
pub const ACKNOWLEDGED_DAYS: i64 = 30;
/// Maximum number of acknowledgements, the newest.
const ACKNOWLEDGED_MAX: u64 = 1_000;
const DAY_MS: i64 = 86_400_000;

/// Fields of the form.
pub(super) const FIELDS: [(&str, Sort); 3] = [("kind", Sort::Text), ("item", Sort::Text), ("reason", Sort::Text)];

/// Acknowledgements by kind and position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(HashMap<AttentionKind, BTreeMap<String, AcknowledgedEntry>>);

record! {
    fn of(row: Model, kind: AttentionKind) {}

    /// An acknowledged entry.
    #[derive(Debug, Clone)]
    pub struct AcknowledgedEntry {
        pub(super) kind: String = kind.as_str().to_owned(),
        /// Position of the entry among those of its kind.
        pub(super) item: String = row.item,
        /// Name of the operator.
        pub(super) operator: String = row.operator,
        pub(super) reason: String = row.reason,
        pub(super) at: DateTime = Timestamp(row.at).into(),
    }
}

request! {
    /// An entry to acknowledge.
    pub struct AcknowledgeRequest refusing(unknown::<AcknowledgeRequest>) {
        /// Kind of the entry.
        pub(super) kind: AttentionKind = required(rule::name()),
        /// Its `item`.
        pub(super) item: Position = required(super::POSITION),
        /// Reason why no action is needed, for colleagues.
        pub(super) reason: String = required(rule::text()).example("The PSP was informed."),
    }
}

request! {
    /// An acknowledgement to end.
    pub struct ReopenRequest refusing(unknown::<ReopenRequest>) {
        /// Kind of the entry.
        pub(super) kind: AttentionKind = required(rule::name()),
        /// Its `item`.
        pub(super) item: Position = required(super::POSITION),
    }
}

impl Acknowledged {
    /// Reads the newest ones.
    pub(crate) async fn load(system: &System) -> Result<Self, DbErr> {
        let after = system.clock().real_now::<Timestamp>().as_millis() - ACKNOWLEDGED_DAYS * DAY_MS;
        let newest = Entity::find().filter(Column::At.gt(after)).order_by_desc(Column::At).limit(ACKNOWLEDGED_MAX);
        let mut all = Self::default();
        for row in newest.all(system.database().reader()).await? {
            // A later version may have other kinds.
            if let Ok(kind) = row.kind.parse::<AttentionKind>() {
                let item = row.item.clone();
                all.0.entry(kind).or_default().insert(item, AcknowledgedEntry::of(row, kind));
            }
        }
        Ok(all)
    }

    /// Returns true if no entry of the kind is acknowledged.
    pub(super) fn is_empty(&self, kind: AttentionKind) -> bool {
        !self.0.contains_key(&kind)
    }

    pub(super) fn contains(&self, kind: AttentionKind, position: &Position) -> bool {
        self.0.get(&kind).is_some_and(|items| items.contains_key(&position.to_string()))
    }

    /// All of them, by kind in order of urgency.
    pub(super) fn entries(&self) -> Vec<AcknowledgedEntry> {
        AttentionKind::ALL
            .iter()
            .filter_map(|kind| self.0.get(kind))
            .flat_map(|items| items.values().cloned())
            .collect()
    }
}

/// Acknowledges an entry. Used by the API and the page.
pub(super) async fn acknowledge(operator: &Operator, wanted: AcknowledgeRequest) -> Result<(), ApiError> {
    let AcknowledgeRequest { kind, item, reason } = wanted;
    if !kind.may_be_acknowledged() {
        let detail =
            format!("Entries of the kind {kind} cannot be acknowledged: they end with a decision or by themselves.");
        return Err(ApiError::conflict("not_acknowledgeable", detail));
    }
    let system = &operator.system;
    let now: Timestamp = system.clock().real_now();
    let name = request::current().and_then(|request| request.operator).unwrap_or_default();
    let row = Model {
        kind: kind.as_str().to_owned(),
        item: item.to_string(),
        operator: name,
        reason: reason.clone(),
        at: now.as_millis(),
    };
    let transaction = system.database().begin().await?;
    Entity::delete_many()
        .filter(Column::At.lte(now.as_millis() - ACKNOWLEDGED_DAYS * DAY_MS))
        .exec(&transaction)
        .await?;
    let again = OnConflict::columns([Column::Kind, Column::Item])
        .update_columns([Column::Operator, Column::Reason, Column::At])
        .to_owned();
    Entity::insert(row.into_active_model()).on_conflict(again).exec_without_returning(&transaction).await?;
    let entry = NewAuditEntry {
        action: "attention.acknowledged".to_owned(),
        psp_id: None,
        subject: item.id.clone(),
        detail: json!({ "kind": kind, "item": item.to_string(), "reason": reason }),
    };
    audit::append(&transaction, &Actor::Operator, now, vec![entry]).await?;
    transaction.commit().await?;
    operator.attention.forget();
    Ok(())
}

/// Ends an acknowledgement; returns whether it existed. Used by the API and the page.
pub(super) async fn reopen(operator: &Operator, wanted: ReopenRequest) -> Result<bool, ApiError> {
    let ReopenRequest { kind, item } = wanted;
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let key = (kind.as_str().to_owned(), item.to_string());
    let existed = Entity::delete_by_id(key).exec(&transaction).await?.rows_affected > 0;
    if existed {
        let entry = NewAuditEntry {
            action: "attention.reopened".to_owned(),
            psp_id: None,
            subject: item.id.clone(),
            detail: json!({ "kind": kind, "item": item.to_string() }),
        };
        audit::append(&transaction, &Actor::Operator, system.clock().real_now(), vec![entry]).await?;
    }
    transaction.commit().await?;
    operator.attention.forget();
    Ok(existed)
}

/// A changed acknowledgement.
#[derive(Serialize, ToSchema)]
pub struct AcknowledgementChange {
    #[schema(value_type = String)]
    kind: AttentionKind,
    item: String,
    /// True if the entry is acknowledged now.
    acknowledged: bool,
    /// False if it was so before.
    changed: bool,
}

/// Acknowledge an entry
///
/// The entry is then listed under `acknowledged` and is not counted, for 30 days or until the problem begins again. Entries that
/// wait for a decision end with the decision.
#[utoipa::path(
    post, path = "/ops/stuck/acknowledge", tag = "Service", operation_id = "acknowledge", request_body = AcknowledgeRequest,
    responses(
        (status = 200, description = "It is acknowledged.", body = AcknowledgementChange),
        (status = 409, description = "`not_acknowledgeable`.", body = Problem),
    ),
)]
pub(crate) async fn acknowledge_entry(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let wanted: AcknowledgeRequest = body.parse()?;
    let (kind, item) = (wanted.kind, wanted.item.to_string());
    acknowledge(&operator, wanted).await?;
    Answer::ok(&AcknowledgementChange { kind, item, acknowledged: true, changed: true })
}

/// End an acknowledgement
///
/// Can be repeated.
#[utoipa::path(
    post, path = "/ops/stuck/reopen", tag = "Service", operation_id = "reopenEntry", request_body = ReopenRequest,
    responses((status = 200, description = "It is not acknowledged.", body = AcknowledgementChange)),
)]
pub(crate) async fn reopen_entry(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let wanted: ReopenRequest = body.parse()?;
    let (kind, item) = (wanted.kind, wanted.item.to_string());
    let changed = reopen(&operator, wanted).await?;
    Answer::ok(&AcknowledgementChange { kind, item, acknowledged: false, changed })
}
