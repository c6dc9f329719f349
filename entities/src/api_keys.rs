//! API keys. The secret itself is never stored, only its keyed hash.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "api_keys")]
pub struct Model {
    /// Public part of the key, found by.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// What the owner calls it.
    pub name: String,
    /// HMAC-SHA256 of the whole key, hex.
    pub secret_hash: String,
    /// JSON array of scope names.
    #[sea_orm(column_type = "Text")]
    pub scopes: String,
    /// Refused from then on, milliseconds since the epoch.
    pub expires_at: Option<i64>,
    /// Refused since, milliseconds since the epoch.
    pub revoked_at: Option<i64>,
    /// Coarse (a minute), milliseconds since the epoch.
    pub last_used_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
