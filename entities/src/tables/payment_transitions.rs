//! Events of payments, one row per commit; append-only.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "payment_transitions")]
pub struct Model {
    /// Payment.
    #[sea_orm(primary_key, auto_increment = false)]
    pub payment_id: String,
    /// Version of the payment after this transition.
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// JSON array of domain events.
    #[sea_orm(column_type = "Text")]
    pub events: String,
    /// The command that caused it, as JSON. None for the initiation, and if an earlier version wrote the row.
    #[sea_orm(column_type = "Text", nullable)]
    pub command: Option<String>,
    /// Time that the decision took, microseconds.
    pub decided_us: Option<i64>,
}

crate::tables::without_relations!();
