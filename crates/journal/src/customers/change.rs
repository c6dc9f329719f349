//! Changes a customer. The row is locked, the domain decides, and the row, its checks, and the audit entries are
//! written in a transaction that the caller commits.

use payferry_domain::customer::{self, Command, Customer, Event, Rejection};
use payferry_domain::{CheckId, CustomerId, PspId, Timestamp};
use payferry_entities::{Database, Transaction, checks, customers};
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect};

use super::store::{customer_of, write_into};
use crate::audit::{self, Actor, Entry};

/// Status of a check that is not yet started at the provider.
pub const QUEUED: &str = "queued";
/// Status of a check that is started at the provider.
pub const OPEN: &str = "open";

/// Error of changing a customer.
pub type ChangeError = payferry_entities::ChangeError<Rejection>;

/// A customer whose row is locked until the transaction ends. Dropping it changes nothing.
#[derive(Debug)]
pub struct Opened {
    /// Row. Callers set data that the domain does not know (`particulars`) here, before [`Self::apply`].
    pub row: customers::Model,
    customer: Customer,
    transaction: Transaction,
}

impl Opened {
    /// Locks the customer. If `owner` is set, the customer must belong to this PSP.
    pub async fn find(database: &Database, id: CustomerId, owner: Option<PspId>) -> Result<Self, ChangeError> {
        let transaction = database.begin().await?;
        let mut query = customers::Entity::find_by_id(id.to_string());
        if let Some(psp_id) = owner {
            query = query.filter(customers::Column::PspId.eq(psp_id.to_string()));
        }
        let row = query.lock_exclusive().one(&transaction).await?.ok_or(ChangeError::NotFound)?;
        let customer = customer_of(&row)?;
        Ok(Self { row, customer, transaction })
    }

    /// Returns the customer in its current state in this transaction.
    pub fn customer(&self) -> &Customer {
        &self.customer
    }

    /// Returns the transaction, for other writes of the same change.
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// Decides the command and writes its consequences. Returns the events; empty if the command is outdated or already
    /// known.
    pub async fn apply(&mut self, command: &Command, by: &Actor, now: Timestamp) -> Result<Vec<Event>, ChangeError> {
        let transition = customer::transition(&self.customer, command, now).map_err(ChangeError::Rejected)?;
        let Some(transition) = transition else { return Ok(Vec::new()) };
        let before = self.customer.version;
        self.customer = transition.customer;
        write_into(&self.customer, &mut self.row);
        self.row.updated_at = now.as_millis();
        self.write_row(before).await?;
        for event in &transition.events {
            self.write_check(event, now).await?;
        }
        let entries = transition.events.iter().map(|event| self.entry(event)).collect();
        audit::append(&self.transaction, by, now, entries).await?;
        Ok(transition.events)
    }

    /// Returns the transaction for the commit.
    pub fn into_transaction(self) -> Transaction {
        self.transaction
    }

    /// Commits.
    pub async fn commit(self) -> Result<(), ChangeError> {
        Ok(self.transaction.commit().await?)
    }

    async fn write_row(&self, version_before: i64) -> Result<(), ChangeError> {
        let row = self.row.clone().into_active_model().reset_all();
        let written = customers::Entity::update_many()
            .set(row)
            .filter(customers::Column::Id.eq(&self.row.id))
            .filter(customers::Column::Version.eq(version_before))
            .exec(&self.transaction)
            .await?;
        match written.rows_affected {
            1 => Ok(()),
            rows => Err(DbErr::Custom(format!("{rows} rows of a locked customer were written")).into()),
        }
    }

    async fn write_check(&self, event: &Event, now: Timestamp) -> Result<(), ChangeError> {
        let (check, status) = match event {
            Event::CheckQueued { check, purpose, revision } => {
                let row = checks::Model {
                    id: check.to_string(),
                    customer_id: self.row.id.clone(),
                    psp_id: self.row.psp_id.clone(),
                    purpose: purpose.as_str().to_owned(),
                    revision: (*revision).into(),
                    status: QUEUED.to_owned(),
                    provider: None,
                    provider_ref: None,
                    url: None,
                    attempts: 0,
                    next_attempt_at: Some(now.as_millis()),
                    last_error: None,
                    created_at: now.as_millis(),
                    updated_at: now.as_millis(),
                };
                checks::Entity::insert(row.into_active_model()).exec_without_returning(&self.transaction).await?;
                return Ok(());
            }
            Event::CheckSuperseded { check } => (check, "superseded"),
            Event::CheckLapsed { check } => (check, "lapsed"),
            Event::CheckPassed { check } => (check, "passed"),
            Event::CheckFailed { check } => (check, "failed"),
            _ => return Ok(()),
        };
        self.end_check(*check, status, now).await
    }

    async fn end_check(&self, check: CheckId, status: &str, now: Timestamp) -> Result<(), ChangeError> {
        checks::Entity::update_many()
            .col_expr(checks::Column::Status, Expr::value(status))
            .col_expr(checks::Column::NextAttemptAt, Expr::value(Option::<i64>::None))
            .col_expr(checks::Column::UpdatedAt, Expr::value(now.as_millis()))
            .filter(checks::Column::Id.eq(check.to_string()))
            .exec(&self.transaction)
            .await?;
        Ok(())
    }

    fn entry(&self, event: &Event) -> Entry {
        let mut detail = serde_json::to_value(event).unwrap_or_default();
        if let Some(fields) = detail.as_object_mut() {
            // The name is part of the action.
            fields.remove("event");
        }
        Entry {
            action: format!("customer.{}", event.name()),
            psp_id: Some(self.customer.psp_id),
            subject: self.row.id.clone(),
            detail,
        }
    }
}
