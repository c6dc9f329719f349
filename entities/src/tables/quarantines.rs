//! Quarantined payments, payouts, withdrawals and customers. Releasing one deletes its row.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "quarantines")]
pub struct Model {
    /// Id of the payment, payout, withdrawal or customer.
    #[sea_orm(primary_key, auto_increment = false)]
    pub subject: String,
    /// Milliseconds since the epoch.
    pub since: i64,
    /// The last failure.
    #[sea_orm(column_type = "Text")]
    pub reason: String,
}

crate::tables::without_relations!();
