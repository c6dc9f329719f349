//! Sessions of the operator's pages. A session is valid as long as the token that opened it, at most until its end.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "operator_sessions")]
pub struct Model {
    /// HMAC-SHA256 of the session id, hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub session_hash: String,
    /// Hash of the token that opened the session.
    pub token_hash: String,
    /// End in milliseconds since the epoch.
    pub ends_at: i64,
}

crate::tables::without_relations!();
