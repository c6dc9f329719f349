//! Each attempt at a delivery; append-only.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "delivery_attempts")]
pub struct Model {
    /// Delivery.
    #[sea_orm(primary_key, auto_increment = false)]
    pub delivery_id: String,
    /// From 1.
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Where it went.
    pub url: String,
    /// HTTP status, if there was an answer.
    pub response_code: Option<i64>,
    /// First 1 KiB of the answer.
    pub response_body: Option<String>,
    /// How long it took.
    pub duration_ms: i64,
    /// Why it failed, if not by its answer.
    pub error: Option<String>,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
