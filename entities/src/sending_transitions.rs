//! Events of payouts and withdrawals, one row per commit.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "sending_transitions")]
pub struct Model {
    /// Payout or withdrawal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub sending_id: String,
    /// Version after this transition.
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// JSON array of events.
    #[sea_orm(column_type = "Text")]
    pub events: String,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
