//! Transactions of the operator's account, one row a nonce.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
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
    /// submitted, mined, final, reverted or cancelled.
    pub status: String,
    /// The attempt that was mined.
    pub tx_hash: Option<String>,
    /// Where it was mined.
    pub block_number: Option<i64>,
    /// Of that block.
    pub block_hash: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
