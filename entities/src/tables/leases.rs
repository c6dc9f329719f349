//! Leases: which node does what. The rows are permanent.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "leases")]
pub struct Model {
    /// Kind and value, such as `chain:base`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// Kind: `shard`, `chain`, `bucket` or `job`.
    pub kind: String,
    /// `node_` id; null before the first claim.
    pub owner: Option<String>,
    /// `node_` id to which an operator wants it handed over.
    pub requested_by: Option<String>,
    /// Number of changes of the owner.
    pub epoch: i64,
    /// Milliseconds since the epoch, by the clock of the database server.
    pub changed_at: i64,
}

crate::tables::without_relations!();
