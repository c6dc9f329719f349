//! Amount sent per PSP and day, for the daily limit.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "sends_per_day")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// USDC or USDT.
    #[sea_orm(primary_key, auto_increment = false)]
    pub token: String,
    /// Days since the epoch, UTC.
    #[sea_orm(primary_key, auto_increment = false)]
    pub day: i64,
    /// Base units accepted on that day, on all chains.
    pub amount: i64,
}

crate::tables::without_relations!();
