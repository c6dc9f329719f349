//! First answers to requests with an Idempotency-Key.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "idempotency_keys")]
pub struct Model {
    /// Owner.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Method and path template.
    #[sea_orm(primary_key, auto_increment = false)]
    pub route: String,
    /// As the caller gave it.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    /// HMAC-SHA256 of the body, hex.
    pub request_hash: String,
    /// HTTP status of the first answer.
    pub response_status: i64,
    /// The first answer, encrypted.
    pub response_body: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub expires_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
