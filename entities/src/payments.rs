//! One row a payment: the aggregate (`state`) and what is asked for often, as columns.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "payments")]
pub struct Model {
    /// `pay_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// payin, or transfer: sent on to a customer.
    pub purpose: String,
    /// Merchant paid, of a pay-in.
    pub merchant_id: Option<String>,
    /// Customer paying, if named; of a transfer, who is paid.
    pub customer_id: Option<String>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// Logical shard, 0 to 255, from the id.
    pub shard: i64,
    /// Transitions made; the compare-and-swap guard.
    pub version: i64,
    /// pending, confirmed, settled, mismatched or failed.
    pub status: String,
    /// Wants an actor: something is still to happen by itself.
    pub live: bool,
    /// What of it wants an operator: `SETTLEMENT_FAILED`, `IN_REVIEW` or `FUNDS_BLOCKED`.
    pub attention: Option<String>,
    /// Chain the money is due on.
    pub chain: String,
    /// USDC or USDT.
    pub token: String,
    /// Due, base units.
    pub amount: i64,
    /// Counted at or before confirmation, base units.
    pub amount_received: i64,
    /// Intermediary wallet, 0x lower-case hex, unique.
    pub wallet: String,
    /// Unguessable part of the magic link, unique.
    pub link_token: String,
    /// Milliseconds since the epoch.
    pub expires_at: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// The payment aggregate as JSON.
    #[sea_orm(column_type = "Text")]
    pub state: String,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
