//! Payments: the aggregate (`state`), with frequently queried values as columns.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "payments")]
pub struct Model {
    /// `pay_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// payin, or transfer (forwarded to a customer).
    pub purpose: String,
    /// Merchant of a pay-in.
    pub merchant_id: Option<String>,
    /// Paying customer, if known; for a transfer, the recipient customer.
    pub customer_id: Option<String>,
    /// Reference from the PSP.
    pub reference: Option<String>,
    /// Logical shard, 0 to 255, from the id.
    pub shard: i64,
    /// Number of transitions; guard of compare-and-swap.
    pub version: i64,
    /// pending, confirmed, settled, mismatched or failed.
    pub status: String,
    /// True if the payment needs an actor because work is pending.
    pub live: bool,
    /// Label that needs attention from an operator: `SETTLEMENT_FAILED`, `IN_REVIEW` or `FUNDS_BLOCKED`.
    pub attention: Option<String>,
    /// All labels as a JSON list; null if there are none.
    pub labels: Option<String>,
    /// Chain of the payment.
    pub chain: String,
    /// USDC or USDT.
    pub token: String,
    /// Amount due, base units.
    pub amount: i64,
    /// Amount counted before confirmation, base units.
    pub amount_received: i64,
    /// Intermediary wallet, 0x lower-case hex, unique.
    pub wallet: String,
    /// Secret part of the magic link, unique.
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

crate::tables::without_relations!();
