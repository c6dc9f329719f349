//! Token transfers to our addresses, as the watcher recorded them.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "transfers")]
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
    /// Payment whose wallet received it.
    pub payment_id: String,
    /// Token contract, 0x lower-case hex.
    pub token_address: String,
    /// Sender, 0x lower-case hex.
    pub from_address: String,
    /// Receiver, 0x lower-case hex.
    pub to_address: String,
    /// Base units.
    pub amount: i64,
    /// Number of the block.
    pub block_number: i64,
    /// Time of the block, in milliseconds since the epoch.
    pub block_time: i64,
    /// present or orphaned.
    pub presence: String,
    /// Incremented with every change of the row; starts at 1.
    pub revision: i64,
    /// Last revision that the payment applied; 0 before.
    pub applied_revision: i64,
    /// Version of the payment that applied it; 0 before, or if the payment set the transfer aside.
    pub applied_version: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
