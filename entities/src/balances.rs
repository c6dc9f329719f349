//! Balance of each PSP's vault, as running sums of the ledger.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "balances")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// 0x lower-case hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub token_address: String,
    /// Available base units: account `psp` of the ledger. Negative only after a settlement was orphaned.
    pub available: i64,
    /// Reserved base units: account `in_flight` of the ledger.
    pub reserved: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
