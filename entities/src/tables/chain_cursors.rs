//! Position of the watcher on each chain.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_cursors")]
pub struct Model {
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// Last block that was read completely.
    pub block_number: i64,
    /// Hash of that block.
    pub block_hash: String,
    /// Time of that block, in milliseconds since the epoch.
    pub block_time: i64,
    /// First block that was not rescanned yet.
    pub second_look_from: i64,
    /// Lease epoch of the writer.
    pub epoch: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
