//! Transfers from outside to vaults of PSPs. No payment expects them, and the ledger keeps them apart.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "deposits")]
pub struct Model {
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// 0x hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub tx_hash: String,
    /// Index of the log in its block.
    #[sea_orm(primary_key, auto_increment = false)]
    pub log_index: i64,
    /// Hash of the block.
    #[sea_orm(primary_key, auto_increment = false)]
    pub block_hash: String,
    /// PSP whose vault received it.
    pub psp_id: String,
    /// Token contract, 0x lower-case hex.
    pub token_address: String,
    /// Sender, 0x lower-case hex.
    pub from_address: String,
    /// Base units.
    pub amount: i64,
    /// Number of the block.
    pub block_number: i64,
    /// True once the block is final and the ledger has the amount.
    pub posted: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
