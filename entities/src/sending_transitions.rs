//! What happened to each payout and withdrawal: one row a commit.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "sending_transitions")]
pub struct Model {
    /// Whose.
    #[sea_orm(primary_key, auto_increment = false)]
    pub sending_id: String,
    /// The version that it made.
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// The events as a JSON list.
    #[sea_orm(column_type = "Text")]
    pub events: String,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
