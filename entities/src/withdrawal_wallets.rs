//! Withdrawal wallets of PSPs. Rows are only inserted; their order and times determine the current wallet.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "withdrawal_wallets")]
pub struct Model {
    /// Row number, in the order of insertion.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Owning PSP.
    pub psp_id: String,
    /// Chain, or `*` for every chain without its own row.
    pub chain: String,
    /// Wallet address; null disables withdrawals.
    pub address: Option<String>,
    /// Time from which it applies, in milliseconds since the epoch.
    pub effective_at: i64,
    /// Kind of the actor that set it, as in the audit log.
    pub set_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
