//! Converts between rows and the domain's customer.

use payferry_domain::customer::{Check, Customer, CustomerKind, Documents};
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::customers::{Entity, Model};
use payferry_entities::{StoreError, idempotency_keys};
use sea_orm::{ConnectionTrait, DbErr, EntityTrait, IntoActiveModel};
use serde_json::json;

use crate::audit::{self, Actor, Entry};
use crate::writer::{CustomerCreation, JournalWrite};

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
    pub fn row(self, now: Timestamp) -> Model {
        let customer = Customer::new(self.id, self.psp_id, self.kind);
        let mut row = Model {
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
            particulars: self.particulars,
            created_at: now.as_millis(),
            updated_at: now.as_millis(),
        };
        write_into(&customer, &mut row);
        row
    }
}

/// Returns the write for a new customer.
pub fn creation(row: Model, by: &Actor, now: Timestamp, idempotency: Option<idempotency_keys::Model>) -> JournalWrite {
    let audit = audit::row(created(&row), by, now);
    JournalWrite::Customer(Box::new(CustomerCreation { customer: row, audit, idempotency }))
}

fn created(row: &Model) -> Entry {
    Entry {
        action: "customer.created".to_owned(),
        psp_id: row.psp_id.parse().ok(),
        subject: row.id.clone(),
        detail: json!({ "kind": row.kind }),
    }
}

/// Writes new customers and their audit entries. Atomic if `connection` is a transaction.
pub async fn create(
    connection: &impl ConnectionTrait,
    rows: &[Model],
    by: &Actor,
    now: Timestamp,
) -> Result<(), DbErr> {
    let entries = rows.iter().map(created).collect();
    Entity::insert_many(rows.iter().cloned().map(Model::into_active_model)).exec_without_returning(connection).await?;
    audit::append(connection, by, now, entries).await
}

/// Returns the customer in the row.
pub fn customer_of(row: &Model) -> Result<Customer, StoreError> {
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
fn check_of(row: &Model) -> Result<Option<Check>, StoreError> {
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
pub(super) fn write_into(customer: &Customer, row: &mut Model) {
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
