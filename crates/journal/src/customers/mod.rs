//! Customer rows: reading, changes, and audit entries.
//!
//! This module owns the content of the columns of `customers`, and ensures that a change, its checks, and its audit
//! entries are one commit. Decisions are made in the domain; personal data (names, ids, addresses) passes through
//! encrypted. Customers have no actor: a change locks the row, the domain decides, and the row, its checks, and the audit
//! entries are written in a transaction that the caller commits.

pub mod events;
#[cfg(test)]
pub(crate) mod tests;

use payferry_domain::customer::{self, Check, Command, Customer, CustomerKind, Documents, Event, Rejection};
use payferry_domain::{CustomerId, PspId, Timestamp, TransitionError};
use payferry_entities::{CheckStatus, Database, Transaction, checks, customers, idempotency_keys};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
};
use serde_json::json;

use crate::audit::{self, Actor, NewAuditEntry};
use crate::violations;
use crate::writer::{CustomerCreation, JournalWrite};

pub use payferry_entities::StoreError;

/// A customer without a row.
#[derive(Debug, Clone)]
pub struct NewCustomer {
    /// Customer id.
    pub id: CustomerId,
    /// PSP that owns the customer.
    pub psp_id: PspId,
    /// Person or company.
    pub kind: CustomerKind,
    /// As submitted.
    pub email: String,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// ISO 4217.
    pub currency: String,
    /// All other data, encrypted for the place `["customers", id, "particulars"]`.
    pub particulars: String,
}

impl NewCustomer {
    /// Returns the row at version 1.
    pub fn row(self, now: Timestamp) -> customers::Model {
        let customer = Customer::new(self.id, self.psp_id, self.kind);
        let mut row = customers::Model {
            id: self.id.to_string(),
            psp_id: self.psp_id.to_string(),
            kind: self.kind.as_str().to_owned(),
            email_search: self.email.to_lowercase(),
            email: self.email,
            country: self.country,
            currency: self.currency,
            kyc_status: String::new(),
            before_update: None,
            is_active: true,
            tos_accepted_at: None,
            documents: String::new(),
            check_id: None,
            check_purpose: None,
            check_revision: None,
            rejection_reasons: String::new(),
            revision: 0,
            version: 0,
            event_sequence: 0,
            particulars: self.particulars,
            created_at: now.as_millis(),
            updated_at: now.as_millis(),
        };
        write_into(&customer, &mut row);
        row
    }
}

/// Returns the write for a new customer.
pub fn creation(
    row: customers::Model,
    by: &Actor,
    now: Timestamp,
    idempotency: Option<idempotency_keys::Model>,
) -> JournalWrite {
    let audit = audit::row(created(&row), by, now);
    JournalWrite::Customer(Box::new(CustomerCreation { customer: row, audit, idempotency }))
}

fn created(row: &customers::Model) -> NewAuditEntry {
    NewAuditEntry {
        action: "customer.created".to_owned(),
        psp_id: row.psp_id.parse().ok(),
        subject: row.id.clone(),
        detail: json!({ "kind": row.kind }),
    }
}

/// Writes new customers and their audit entries. Atomic if `connection` is a transaction.
pub async fn create(
    connection: &impl ConnectionTrait,
    rows: &[customers::Model],
    by: &Actor,
    now: Timestamp,
) -> Result<(), DbErr> {
    let entries = rows.iter().map(created).collect();
    customers::Entity::insert_many(rows.iter().cloned().map(IntoActiveModel::into_active_model))
        .exec_without_returning(connection)
        .await?;
    audit::append(connection, by, now, entries).await
}

/// Returns the customer in the row.
pub fn customer_of(row: &customers::Model) -> Result<Customer, StoreError> {
    let unreadable = |column: &str| StoreError::unreadable("customer", &row.id, &column);
    Ok(Customer {
        id: row.id.parse().map_err(|_| unreadable("id"))?,
        psp_id: row.psp_id.parse().map_err(|_| unreadable("psp_id"))?,
        kind: row.kind.parse().map_err(|_| unreadable("kind"))?,
        kyc_status: row.kyc_status.parse().map_err(|_| unreadable("kyc_status"))?,
        before_update: row
            .before_update
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|_| unreadable("before_update"))?,
        is_active: row.is_active,
        tos_accepted_at: row.tos_accepted_at.map(Timestamp),
        documents: serde_json::from_str::<Documents>(&row.documents).map_err(|_| unreadable("documents"))?,
        check: check_of(row)?,
        rejection_reasons: serde_json::from_str(&row.rejection_reasons).map_err(|_| unreadable("rejection_reasons"))?,
        revision: row.revision.try_into().map_err(|_| unreadable("revision"))?,
        version: row.version,
    })
}

/// Returns the current check. Either all its columns are set, or none.
fn check_of(row: &customers::Model) -> Result<Option<Check>, StoreError> {
    let unreadable = || StoreError::unreadable("customer", &row.id, &"check_id");
    match (&row.check_id, &row.check_purpose, row.check_revision) {
        (None, None, None) => Ok(None),
        (Some(id), Some(purpose), Some(revision)) => Ok(Some(Check {
            id: id.parse().map_err(|_| unreadable())?,
            purpose: purpose.parse().map_err(|_| unreadable())?,
            revision: revision.try_into().map_err(|_| unreadable())?,
        })),
        _ => Err(unreadable()),
    }
}

/// Writes the domain's state into the columns.
fn write_into(customer: &Customer, row: &mut customers::Model) {
    customer.kyc_status.as_str().clone_into(&mut row.kyc_status);
    row.before_update = customer.before_update.map(|status| status.as_str().to_owned());
    row.is_active = customer.is_active;
    row.tos_accepted_at = customer.tos_accepted_at.map(Timestamp::as_millis);
    row.documents = serde_json::to_string(&customer.documents).expect("names are JSON");
    row.check_id = customer.check.map(|check| check.id.to_string());
    row.check_purpose = customer.check.map(|check| check.purpose.as_str().to_owned());
    row.check_revision = customer.check.map(|check| check.revision.into());
    row.rejection_reasons = serde_json::to_string(&customer.rejection_reasons).expect("texts are JSON");
    row.revision = customer.revision.into();
    row.version = customer.version;
}

/// Error of changing a customer.
pub type CustomerChangeError = payferry_entities::ChangeError<TransitionError<Rejection>>;

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
    pub async fn find(database: &Database, id: CustomerId, owner: Option<PspId>) -> Result<Self, CustomerChangeError> {
        let transaction = database.begin().await?;
        let mut query = customers::Entity::find_by_id(id.to_string());
        if let Some(psp_id) = owner {
            query = query.filter(customers::Column::PspId.eq(psp_id.to_string()));
        }
        let row = query.lock_exclusive().one(&transaction).await?.ok_or(CustomerChangeError::NotFound)?;
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
    /// known. A change that would violate an invariant is reported and not written.
    pub async fn apply(
        &mut self,
        command: &Command,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Event>, CustomerChangeError> {
        let transition = customer::transition(&self.customer, command, now).map_err(|error| {
            if let TransitionError::Violated(violated) = &error {
                violations::report(self.customer.id, violated);
            }
            CustomerChangeError::Rejected(error)
        })?;
        let Some(transition) = transition else { return Ok(Vec::new()) };
        let before = std::mem::replace(&mut self.customer, transition.customer);
        write_into(&self.customer, &mut self.row);
        self.row.updated_at = now.as_millis();
        events::record(&self.transaction, &before, &self.customer, &mut self.row).await?;
        self.write_row(before.version).await?;
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
    pub async fn commit(self) -> Result<(), CustomerChangeError> {
        Ok(self.transaction.commit().await?)
    }

    async fn write_row(&self, version_before: i64) -> Result<(), CustomerChangeError> {
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

    async fn write_check(&self, event: &Event, now: Timestamp) -> Result<(), CustomerChangeError> {
        let (check, status) = match event {
            Event::CheckQueued { check, purpose, revision } => {
                let row = checks::Model {
                    id: check.to_string(),
                    customer_id: self.row.id.clone(),
                    psp_id: self.row.psp_id.clone(),
                    purpose: purpose.as_str().to_owned(),
                    revision: (*revision).into(),
                    status: CheckStatus::Queued,
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
            Event::CheckSuperseded { check } => (check, CheckStatus::Superseded),
            Event::CheckLapsed { check } => (check, CheckStatus::Lapsed),
            Event::CheckPassed { check } => (check, CheckStatus::Passed),
            Event::CheckFailed { check } => (check, CheckStatus::Failed),
            _ => return Ok(()),
        };
        checks::Entity::update_many()
            .col_expr(checks::Column::Status, Expr::value(status))
            .col_expr(checks::Column::NextAttemptAt, Expr::value(Option::<i64>::None))
            .col_expr(checks::Column::UpdatedAt, Expr::value(now.as_millis()))
            .filter(checks::Column::Id.eq(check.to_string()))
            .exec(&self.transaction)
            .await?;
        Ok(())
    }

    fn entry(&self, event: &Event) -> NewAuditEntry {
        let mut detail = serde_json::to_value(event).unwrap_or_default();
        if let Some(fields) = detail.as_object_mut() {
            // The name is part of the action.
            fields.remove("event");
        }
        NewAuditEntry {
            action: format!("customer.{}", event.name()),
            psp_id: Some(self.customer.psp_id),
            subject: self.row.id.clone(),
            detail,
        }
    }
}
