//! How far each chain was read, and the next numbers to give out there.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "chain_cursors")]
pub struct Model {
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// Last block read whole.
    pub block_number: i64,
    /// Of that block.
    pub block_hash: String,
    /// Of that block, milliseconds since the epoch.
    pub block_time: i64,
    /// First block that was not read a second time.
    pub second_look_from: i64,
    /// Lease epoch of the writer.
    pub epoch: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
