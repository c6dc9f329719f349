//! API keys. The table stores only a keyed hash of the secret.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
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
    /// Time of the last change, in milliseconds since the epoch. A use is not a change.
    pub updated_at: i64,
}

crate::tables::without_relations!();
