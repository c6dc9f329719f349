//! What each PSP's vault holds, in running sums of the ledger.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "balances")]
pub struct Model {
    /// Owner.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// 0x lower-case hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub token_address: String,
    /// Base units that nobody has asked for: the ledger's account `psp`. Negative only after the chain took a settlement back.
    pub available: i64,
    /// Base units that are promised: the ledger's account `in_flight`.
    pub reserved: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
