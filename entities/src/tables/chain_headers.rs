//! Headers of blocks that were read and are not final yet. Used to find the start of a reorganisation.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
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

crate::tables::without_relations!();
