//! Next operation number and next nonces of each chain.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_counters")]
pub struct Model {
    /// Name of the counter: `operation:{chain}` or `nonce:{chain}:{address}`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// Next value.
    pub next: i64,
}

crate::tables::without_relations!();
