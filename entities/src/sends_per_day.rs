//! Amount sent per PSP and day, for the daily limit.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "sends_per_day")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// USDC or USDT.
    #[sea_orm(primary_key, auto_increment = false)]
    pub token: String,
    /// Days since the epoch, UTC.
    #[sea_orm(primary_key, auto_increment = false)]
    pub day: i64,
    /// Base units accepted on that day, on all chains.
    pub amount: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
