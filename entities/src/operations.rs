//! Movements of money out of vaults: settlements and sends. Each can succeed once.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "operations")]
pub struct Model {
    /// `op_` id, fixed by what it settles or sends.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Chain it runs on.
    pub chain: String,
    /// Operation number on that chain's contract.
    pub number: i64,
    /// settle, deliver (a transfer's money to its recipient), send (a refund out of the payment's wallet), send_psp (one out of
    /// the PSP's vault), payout or withdrawal.
    pub kind: String,
    /// Payment, payout or withdrawal it belongs to.
    pub payment_id: String,
    /// Owner.
    pub psp_id: String,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Base units moved in all.
    pub amount: i64,
    /// To the PSP's vault, base units.
    pub psp_amount: i64,
    /// To the treasury, base units.
    pub treasury_fee: i64,
    /// Where a send goes.
    pub recipient: Option<String>,
    /// queued, submitted, mined, succeeded, failed or cancelled.
    pub status: String,
    /// The chain transaction that carries it now.
    pub chain_tx_id: Option<i64>,
    /// The mined transaction.
    pub tx_hash: Option<String>,
    /// Where it was mined.
    pub block_number: Option<i64>,
    /// Why it failed last.
    pub failure: Option<String>,
    /// Grows by one whenever the row is queued, queued again, cancelled, or gets an outcome; starts at 1.
    pub revision: i64,
    /// Times it was put into a chain transaction.
    pub attempts: i64,
    /// Not batched before then, milliseconds since the epoch.
    pub not_before: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
