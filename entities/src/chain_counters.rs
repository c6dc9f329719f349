//! The next operation number and nonces of each chain.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "chain_counters")]
pub struct Model {
    /// What is counted: `operation:{chain}` or `nonce:{chain}:{address}`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// The next value to give out.
    pub next: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
