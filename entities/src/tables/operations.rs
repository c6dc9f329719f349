//! Operations: movements of funds out of vaults (settlements and sends), or from payers (authorizations). Each can succeed
//! only once.

use sea_orm::entity::prelude::*;

use crate::OperationStatus;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "operations")]
pub struct Model {
    /// `op_` id, derived from the settlement or send.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Chain.
    pub chain: String,
    /// settle, collect (an authorized amount, to the PSP's vault), deposit (an authorized amount, to the payment's wallet),
    /// deliver (funds of a transfer to its recipient), send (a refund from the payment's wallet), send_psp (a
    /// refund from the PSP's vault), payout or withdrawal.
    pub kind: String,
    /// Payment, payout, or withdrawal.
    pub payment_id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Maximum fee in basis points to which the payment's vault commits; 0 if the funds leave a PSP's vault.
    pub max_fee_bps: i64,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Total, base units.
    pub amount: i64,
    /// Share of the PSP's vault, base units.
    pub psp_amount: i64,
    /// Share of the treasury, base units.
    pub treasury_fee: i64,
    /// Recipient of a send.
    pub recipient: Option<String>,
    /// Payer of an authorization, 0x lower-case hex.
    pub payer: Option<String>,
    /// Nonce of an authorization, 0x lower-case hex.
    pub nonce: Option<String>,
    /// End of an authorization, exclusive, in seconds since the epoch.
    pub valid_before: Option<i64>,
    /// Status.
    pub status: OperationStatus,
    /// Chain transaction that currently contains it.
    pub chain_tx_id: Option<i64>,
    /// Mined transaction.
    pub tx_hash: Option<String>,
    /// Block in which it was mined.
    pub block_number: Option<i64>,
    /// Index of the contract's event in that block, if the operation is an authorization.
    pub log_index: Option<i64>,
    /// Reason of the last failure.
    pub failure: Option<String>,
    /// Incremented whenever the row is queued, queued again, cancelled, or gets an outcome; starts at 1.
    pub revision: i64,
    /// Number of chain transactions that contained it.
    pub attempts: i64,
    /// Earliest time of batching, in milliseconds since the epoch.
    pub not_before: i64,
    /// Context of the trace that it belongs to, as the value of a `traceparent` header.
    pub traceparent: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
