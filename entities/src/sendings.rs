//! Payouts and withdrawals: the aggregate (`state`) and what is asked for often, as columns.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "sendings")]
pub struct Model {
    /// `po_` or `wd_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// payout or withdrawal.
    pub kind: String,
    /// Customer paid, if a payout.
    pub customer_id: Option<String>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// Chain it is sent on.
    pub chain: String,
    /// USDC or USDT.
    pub token: String,
    /// Base units.
    pub amount: i64,
    /// 0x lower-case hex, pinned when it was accepted.
    pub recipient: String,
    /// Transitions made; the compare-and-swap guard.
    pub version: i64,
    /// pending, sent or failed.
    pub status: String,
    /// Wants an actor: something is still to happen by itself.
    pub live: bool,
    /// Its address waits for the operator's decision.
    pub in_review: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// The aggregate as JSON.
    #[sea_orm(column_type = "Text")]
    pub state: String,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
