//! Signed transactions, stored before they are broadcast. A nonce has several when fees rise.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_tx_attempts")]
pub struct Model {
    /// 0x hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub tx_hash: String,
    /// Chain.
    pub chain: String,
    /// Operator's address.
    pub sender: String,
    /// Nonce.
    pub nonce: i64,
    /// Signed transaction, 0x hex.
    #[sea_orm(column_type = "Text")]
    pub raw: String,
    /// Wei, decimal.
    pub max_fee_per_gas: String,
    /// Wei, decimal.
    pub max_priority_fee_per_gas: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
