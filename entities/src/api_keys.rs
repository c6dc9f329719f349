//! API keys. The table stores only a keyed hash of the secret.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "api_keys")]
pub struct Model {
    /// Public part of the key, used for look-up.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Name given by the owner.
    pub name: String,
    /// HMAC-SHA256 of the whole key, hex.
    pub secret_hash: String,
    /// JSON array of scope names.
    #[sea_orm(column_type = "Text")]
    pub scopes: String,
    /// Expiry time in milliseconds since the epoch. The key is rejected from then on.
    pub expires_at: Option<i64>,
    /// Revocation time in milliseconds since the epoch. The key is rejected from then on.
    pub revoked_at: Option<i64>,
    /// Time of last use, to the minute, in milliseconds since the epoch.
    pub last_used_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
