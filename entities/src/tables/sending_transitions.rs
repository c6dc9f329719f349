//! Events of payouts and withdrawals, one row per commit.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "sending_transitions")]
pub struct Model {
    /// Payout or withdrawal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub sending_id: String,
    /// Version after this transition.
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// JSON array of events.
    #[sea_orm(column_type = "Text")]
    pub events: String,
}

crate::tables::without_relations!();
