//! Checks of customers with an identity provider: the queue of the compliance service, and the results.

use sea_orm::entity::prelude::*;

use crate::CheckStatus;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "checks")]
pub struct Model {
    /// `ver_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Checked customer.
    pub customer_id: String,
    /// PSP of the customer.
    pub psp_id: String,
    /// `identity` or `rescreen`.
    pub purpose: String,
    /// Revision of the customer data that is checked.
    pub revision: i64,
    /// Status.
    pub status: CheckStatus,
    /// Provider that was asked.
    pub provider: Option<String>,
    /// Reference of the provider.
    pub provider_ref: Option<String>,
    /// Page where the customer verifies its identity, encrypted.
    pub url: Option<String>,
    /// Number of failed attempts since the provider last answered.
    pub attempts: i64,
    /// Time of the next attempt, in milliseconds since the epoch.
    pub next_attempt_at: Option<i64>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
