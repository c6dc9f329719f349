//! Checks of customers with an identity provider: the compliance desk's queue, and what became of each.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "checks")]
pub struct Model {
    /// `ver_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// About whom.
    pub customer_id: String,
    /// Whose customer that is.
    pub psp_id: String,
    /// `identity` or `rescreen`.
    pub purpose: String,
    /// The customer's revision that it was asked for.
    pub revision: i64,
    /// `queued`, `open` (begun at the provider), `passed`, `failed`, `lapsed` or `superseded`.
    pub status: String,
    /// Who was asked.
    pub provider: Option<String>,
    /// What the provider calls it.
    pub provider_ref: Option<String>,
    /// Where the customer verifies itself, sealed.
    pub url: Option<String>,
    /// How often the provider was asked without success since it last answered.
    pub attempts: i64,
    /// When it is due, milliseconds since the epoch.
    pub next_attempt_at: Option<i64>,
    /// Why the provider did not answer.
    pub last_error: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
