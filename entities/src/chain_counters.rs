//! Next operation number and next nonces of each chain.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "chain_counters")]
pub struct Model {
    /// Name of the counter: `operation:{chain}` or `nonce:{chain}:{address}`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// Next value.
    pub next: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
