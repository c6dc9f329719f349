//! Transactions of the operator account, one row per nonce.

use sea_orm::entity::prelude::*;

use crate::ChainTxStatus;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "chain_txs")]
pub struct Model {
    /// Row number.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// Chain.
    pub chain: String,
    /// Operator's address, 0x lower-case hex.
    pub sender: String,
    /// Nonce of that account on that chain.
    pub nonce: i64,
    /// Called contract.
    pub to_address: String,
    /// Call data, 0x hex.
    #[sea_orm(column_type = "Text")]
    pub input: String,
    /// Gas units.
    pub gas_limit: i64,
    /// Status.
    pub status: ChainTxStatus,
    /// Transaction hash of the attempt that was mined.
    pub tx_hash: Option<String>,
    /// Block in which it was mined.
    pub block_number: Option<i64>,
    /// Hash of that block.
    pub block_hash: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
