//! Token transfers to addresses of ours, as the watcher saw them.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "transfers")]
pub struct Model {
    /// Chain it was seen on.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// 0x hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub tx_hash: String,
    /// Place of the log in its block.
    #[sea_orm(primary_key, auto_increment = false)]
    pub log_index: i64,
    /// Payment whose wallet received it.
    pub payment_id: String,
    /// Contract that logged it, 0x lower-case hex.
    pub token_address: String,
    /// Sender, 0x lower-case hex.
    pub from_address: String,
    /// Receiver, 0x lower-case hex.
    pub to_address: String,
    /// Base units.
    pub amount: i64,
    /// Block that holds it now.
    pub block_number: i64,
    /// Of that block.
    pub block_hash: String,
    /// Of that block, milliseconds since the epoch.
    pub block_time: i64,
    /// present or orphaned.
    pub presence: String,
    /// Grows with every change of what is known; starts at 1.
    pub revision: i64,
    /// The last revision that the payment has taken in; 0 before.
    pub applied_revision: i64,
    /// The payment version that took it in; 0 before, and if the payment has set it aside.
    pub applied_version: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
