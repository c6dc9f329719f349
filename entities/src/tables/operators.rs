//! Named operators. The table stores only a keyed hash of the token.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "operators")]
pub struct Model {
    /// Name in the audit log.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// Name of the role.
    pub role: String,
    /// HMAC-SHA256 of the token, hex.
    pub token_hash: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Revocation time in milliseconds since the epoch. The token is rejected from then on.
    pub revoked_at: Option<i64>,
}

crate::tables::without_relations!();
