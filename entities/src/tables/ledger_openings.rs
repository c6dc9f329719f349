//! Marker that everything from before the ledger is posted.

use sea_orm::entity::prelude::*;

/// The only row.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "ledger_openings")]
pub struct Model {
    /// Always 1.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i64,
    /// Time of posting, in milliseconds since the epoch.
    pub opened_at: i64,
}

crate::tables::without_relations!();
