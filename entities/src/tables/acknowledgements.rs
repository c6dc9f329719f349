//! Entries of the attention feed that an operator has acknowledged.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "acknowledgements")]
pub struct Model {
    /// Kind of the entry.
    #[sea_orm(primary_key, auto_increment = false)]
    pub kind: String,
    /// Position of the entry among those of its kind, which contains its time.
    #[sea_orm(primary_key, auto_increment = false)]
    pub item: String,
    /// Name of the operator.
    pub operator: String,
    /// Reason that the operator gave.
    pub reason: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

crate::tables::without_relations!();
