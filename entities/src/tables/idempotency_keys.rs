//! First responses to requests with an Idempotency-Key.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "idempotency_keys")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Method and path template.
    #[sea_orm(primary_key, auto_increment = false)]
    pub route: String,
    /// Key from the request.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    /// HMAC-SHA256 of the body, hex.
    pub request_hash: String,
    /// HTTP status of the first response.
    pub response_status: i64,
    /// First response, encrypted.
    pub response_body: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub expires_at: i64,
}

crate::tables::without_relations!();
