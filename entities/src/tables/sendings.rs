//! Payouts and withdrawals: the aggregate (`state`), with frequently queried values as columns.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "sendings")]
pub struct Model {
    /// `po_` or `wd_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// payout or withdrawal.
    pub kind: String,
    /// Recipient customer of a payout.
    pub customer_id: Option<String>,
    /// Reference from the PSP.
    pub reference: Option<String>,
    /// Chain.
    pub chain: String,
    /// USDC or USDT.
    pub token: String,
    /// Base units.
    pub amount: i64,
    /// Recipient address, 0x lower-case hex, fixed at acceptance.
    pub recipient: String,
    /// Number of transitions; guard of compare-and-swap.
    pub version: i64,
    /// pending, sent or failed.
    pub status: String,
    /// True if it needs an actor because work is pending.
    pub live: bool,
    /// True if the address waits for a decision of the operator.
    pub in_review: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// The aggregate as JSON.
    #[sea_orm(column_type = "Text")]
    pub state: String,
}

crate::tables::without_relations!();
