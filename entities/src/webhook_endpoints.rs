//! Where each PSP hears of events; one a PSP.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "webhook_endpoints")]
pub struct Model {
    /// Owner.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// HTTPS URL.
    pub url: String,
    /// JSON array of event patterns; empty means all.
    #[sea_orm(column_type = "Text")]
    pub events: String,
    /// Signing secret, encrypted.
    pub secret: String,
    /// The secret before the last rotation, encrypted.
    pub previous_secret: Option<String>,
    /// Until when it signs beside the new one.
    pub previous_secret_expires_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
