//! The view of each chain that the node that reads it publishes for the other nodes.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_views")]
pub struct Model {
    /// Chain name.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// Epoch of the lease of the node that published it.
    pub epoch: i64,
    /// JSON of the view.
    #[sea_orm(column_type = "Text")]
    pub view: String,
}

crate::tables::without_relations!();
