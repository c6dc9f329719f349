//! Periods in which a chain produced no block. They extend deadlines.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_outages")]
pub struct Model {
    /// Chain name.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// Number of the block that ended the outage.
    #[sea_orm(primary_key, auto_increment = false)]
    pub block_number: i64,
    /// Time of the block before the outage, in milliseconds since the epoch.
    pub began_at: i64,
    /// Time of the block that ended it, in milliseconds since the epoch.
    pub ended_at: i64,
}

crate::tables::without_relations!();
