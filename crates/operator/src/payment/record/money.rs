//! Money of a payment: transfers received, settlement, and refunds.

use payferry_accounts::Moment;
use payferry_domain::Token;
use payferry_domain::payment::{Decision, Payment, Refund, Settlement, Transfer, TransferToken};
use payferry_evm::wallet::checksummed;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct SettlementRecord {
    operation_id: String,
    status: &'static str,
    amount: String,
    psp_amount: String,
    treasury_fee: String,
    tx_hash: Option<String>,
    settled_at: Option<Moment>,
    failures: u32,
    failure: Option<String>,
    retry_at: Option<Moment>,
}

#[derive(Debug, Serialize)]
pub(super) struct RefundRecord {
    refund_id: String,
    status: &'static str,
    amount: String,
    address: String,
    tx_hash: Option<String>,
    failure: Option<String>,
    requested_at: Moment,
    finished_at: Option<Moment>,
}

#[derive(Debug, Serialize)]
pub(super) struct TransferRecord {
    chain: &'static str,
    tx_hash: String,
    log_index: u32,
    block_number: u64,
    block_time: Moment,
    from: String,
    amount: String,
    token: Option<&'static str>,
    token_address: String,
    status: &'static str,
    kyt_verdict: &'static str,
    counted: bool,
    excess: bool,
    /// Newest revision of the watcher's row that the payment has applied.
    revision: u32,
    /// Newest revision of the watcher's row. Null if there is no row.
    row_revision: Option<i64>,
}

pub(super) fn settlement_record(settlement: &Settlement) -> SettlementRecord {
    SettlementRecord {
        operation_id: settlement.operation.to_string(),
        status: settlement.state.as_str(),
        amount: settlement.amount.to_string(),
        psp_amount: settlement.psp_amount.to_string(),
        treasury_fee: settlement.treasury_fee.to_string(),
        tx_hash: settlement.tx_hash.map(|hash| hash.to_string()),
        settled_at: settlement.settled_at.map(Moment),
        failures: settlement.failures,
        failure: settlement.failure.clone(),
        retry_at: settlement.retry_at.map(Moment),
    }
}

pub(super) fn refund_record(refund: &Refund) -> RefundRecord {
    RefundRecord {
        refund_id: refund.id.to_string(),
        status: refund.state.as_str(),
        amount: refund.amount.to_string(),
        address: checksummed(refund.to),
        tx_hash: refund.tx_hash.map(|hash| hash.to_string()),
        failure: refund.failure.clone(),
        requested_at: refund.requested_at.into(),
        finished_at: refund.finished_at.map(Moment),
    }
}

pub(super) fn transfer_record(payment: &Payment, transfer: &Transfer, row_revision: Option<i64>) -> TransferRecord {
    let (token, token_address) = match transfer.token {
        TransferToken::Right => (Some(payment.terms.token), payment.terms.token_address),
        TransferToken::Other { token, address } => (Some(token), address),
        TransferToken::LookAlike { address } => (None, address),
    };
    TransferRecord {
        chain: transfer.key.chain.as_str(),
        tx_hash: transfer.key.tx_hash.to_string(),
        log_index: transfer.key.log_index,
        block_number: transfer.block.number,
        block_time: transfer.block.time.into(),
        from: checksummed(transfer.from),
        amount: transfer.amount.to_string(),
        token: token.map(Token::as_str),
        token_address: checksummed(token_address),
        status: transfer.status.as_str(),
        kyt_verdict: transfer.decision().map_or("pending", Decision::as_str),
        counted: transfer.counted,
        excess: transfer.excess,
        revision: transfer.revision,
        row_revision,
    }
}
