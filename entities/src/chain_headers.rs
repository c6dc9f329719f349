//! Headers of blocks that were read and are not final yet. Used to find the start of a reorganisation.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "chain_headers")]
pub struct Model {
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// Block number.
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    /// 0x hex.
    pub hash: String,
    /// 0x hex.
    pub parent_hash: String,
    /// Milliseconds since the epoch.
    pub time: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
