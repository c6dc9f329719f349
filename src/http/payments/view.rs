//! A payment in answers.

use payferry_domain::payment::{
    ChainChoice, HistoryEntry, Label, Payment, Settlement, Transfer, TransferStatus, TransferToken, Verdict,
};
use payferry_domain::{Address, Amount, Finality};
use payferry_evm::wallet::checksummed;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Addresses;
use super::refunds::RefundRecord;
use crate::http::state::Shared;

/// A complete payment. Amounts are decimal strings, times ISO 8601. Values that do not apply (yet) are null.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaymentRecord {
    #[schema(example = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    payment_id: String,
    /// pending, confirmed, settled, mismatched or failed; `labels` has details. For a transfer to a customer: pending,
    /// underpaid, settled or failed.
    status: &'static str,
    /// Absent for a transfer to a customer.
    merchant_id: Option<String>,
    customer_id: Option<String>,
    /// The PSP's own reference.
    reference: Option<String>,
    /// The amount due.
    #[schema(example = "10.00")]
    amount: String,
    /// Amount counted at or before confirmation; does not change after it.
    amount_received: String,
    /// Amount counted after confirmation.
    excess_received: String,
    /// Amount still to be paid.
    amount_due: String,
    /// USDC or USDT.
    currency: &'static str,
    /// The chain on which the payment is due.
    chain: &'static str,
    /// The token's contract. Transfers of other contracts do not count.
    token_address: String,
    /// The address to which the payer sends the money.
    intermediary_wallet: String,
    /// URL of the payer's page.
    magic_link: String,
    /// EIP-681 URI for wallets: a transfer of the amount still due. Null once the payment no longer expects money.
    payment_uri: Option<String>,
    /// UNDERPAID, OVERPAID, LATE, MULTIPLE, EXCESS, REORGED, WRONG_TOKEN, WRONG_CHAIN, IN_REVIEW, FUNDS_BLOCKED or
    /// SETTLEMENT_FAILED.
    labels: Vec<&'static str>,
    /// expired, kyt_blocked, settlement_failed or cancelled; null unless the payment failed.
    failure_reason: Option<&'static str>,
    /// Blocks from the latest transfer's block to the last block read, both included; 0 without a transfer, null while
    /// the chain is not read.
    confirmations: Option<u64>,
    /// Required blocks; null if `required_finality` is not blocks.
    required_confirmations: Option<u32>,
    /// blocks, safe or finalized.
    required_finality: &'static str,
    transfers: Vec<TransferRecord>,
    kyt: KytRecord,
    /// The same as `kyt.verdict`.
    kyt_verdict: &'static str,
    /// Present once the payment was confirmed.
    settlement: Option<SettlementRecord>,
    refunds: Vec<RefundRecord>,
    /// With `best`: the candidate chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain_candidates: Option<Vec<ChainCandidateRecord>>,
    /// As submitted.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    status_history: Vec<HistoryRecord>,
    /// Postponed by outages of the chain.
    #[schema(format = "date-time")]
    expires_at: String,
    #[schema(format = "date-time")]
    created_at: String,
    #[schema(format = "date-time")]
    updated_at: String,
}

/// A token movement to the wallet.
#[derive(Debug, Serialize, ToSchema)]
struct TransferRecord {
    tx_hash: String,
    log_index: u32,
    block_number: u64,
    #[schema(format = "date-time")]
    block_time: String,
    from: String,
    amount: String,
    /// USDC or USDT; null for a token that the service does not support.
    token: Option<&'static str>,
    token_address: String,
    chain: &'static str,
    /// seen, final, orphaned or ignored.
    status: &'static str,
    /// pending, allow, review or block.
    kyt_verdict: &'static str,
    /// True if it is part of the received amount.
    counted: bool,
}

/// Screening result: of the settled money once the payment is confirmed, else the worst of the received transfers.
#[derive(Debug, Serialize, ToSchema)]
struct KytRecord {
    /// pending, allow, review or block.
    verdict: &'static str,
    risk_level: Option<String>,
    /// 0 to 100.
    score: Option<u8>,
    flags: Vec<String>,
    provider: Option<String>,
    #[schema(format = "date-time")]
    checked_at: Option<String>,
}

/// How the amount is divided: `psp_amount` and `treasury_fee` add up to `amount`. Both are null for a transfer to a
/// customer, who receives all of it.
#[derive(Debug, Serialize, ToSchema)]
struct SettlementRecord {
    /// queued, settled, failed or withdrawn.
    status: &'static str,
    amount: String,
    psp_amount: Option<String>,
    treasury_fee: Option<String>,
    tx_hash: Option<String>,
    #[schema(format = "date-time")]
    settled_at: Option<String>,
}

/// A candidate chain of `best`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChainCandidateRecord {
    chain: &'static str,
    /// True if it could have been chosen.
    eligible: bool,
    /// True if it was chosen.
    chosen: bool,
    reason: String,
}

/// One entry of the status history.
#[derive(Debug, Serialize, ToSchema)]
struct HistoryRecord {
    status: &'static str,
    #[schema(format = "date-time")]
    at: String,
    reason: &'static str,
}

impl PaymentRecord {
    /// Builds the record, with confirmations as this process currently sees the chain.
    pub fn of(app: &Shared, payment: &Payment) -> Self {
        let terms = &payment.terms;
        let kyt = payment.kyt();
        let addresses = Addresses::of(terms);
        let payment_uri = addresses.payment_uri(app.system.chains(), payment);
        let (required_confirmations, required_finality) = match payment.required_finality() {
            Finality::Blocks(blocks) => (Some(blocks), "blocks"),
            Finality::Safe => (None, "safe"),
            Finality::Finalized => (None, "finalized"),
        };
        Self {
            payment_id: terms.public_id(),
            status: payment.public_status(),
            merchant_id: terms.merchant_id.map(|id| id.to_string()),
            customer_id: terms.customer_id.map(|id| id.to_string()),
            reference: terms.reference.clone(),
            amount: terms.amount.to_string(),
            amount_received: payment.amount_received().to_string(),
            excess_received: payment.excess_received().to_string(),
            amount_due: payment.amount_due().to_string(),
            currency: terms.token.as_str(),
            chain: terms.chain.as_str(),
            token_address: addresses.token,
            intermediary_wallet: addresses.wallet,
            magic_link: app.magic_link(&terms.link_token),
            payment_uri,
            labels: payment.labels.iter().map(Label::as_str).collect(),
            failure_reason: payment.failure_reason.map(payferry_domain::payment::FailureReason::as_str),
            confirmations: confirmations(app, payment),
            required_confirmations,
            required_finality,
            transfers: payment.transfers.iter().map(|transfer| transfer_record(payment, transfer)).collect(),
            kyt: kyt_record(kyt.as_str(), kyt.verdict),
            kyt_verdict: kyt.as_str(),
            settlement: payment.settlement.as_deref().map(|settlement| settlement_record(payment, settlement)),
            refunds: RefundRecord::all(payment),
            chain_candidates: chain_candidates(payment),
            metadata: terms.metadata.clone(),
            status_history: history(payment),
            expires_at: payment.expires_at.to_string(),
            created_at: terms.created_at.to_string(),
            updated_at: payment.updated_at.to_string(),
        }
    }
}

/// Progress of the latest transfer that may count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Progress {
    /// Blocks of confirmation, its own included; at most `required`.
    pub(in crate::http) confirmations: u64,
    /// Required blocks.
    pub(in crate::http) required: u64,
}

/// The progress of a transfer that waits for a number of blocks; `None` if there is none.
pub(in crate::http) fn progress(app: &Shared, payment: &Payment) -> Option<Progress> {
    let waits = |transfer: &Transfer| transfer.is_right() && transfer.status == TransferStatus::Seen;
    let Finality::Blocks(required) = payment.required_finality() else { return None };
    if !payment.transfers.iter().any(waits) {
        return None;
    }
    let required = u64::from(required);
    Some(Progress { confirmations: confirmations(app, payment)?.min(required), required })
}

/// Confirmations of the latest transfer that may count.
fn confirmations(app: &Shared, payment: &Payment) -> Option<u64> {
    let present = payment.transfers.iter().filter(|transfer| transfer.is_right() && transfer.is_present());
    let Some(youngest) = present.map(|transfer| transfer.block.number).max() else { return Some(0) };
    let read = app.system.chain_view(payment.terms.chain)?.read_number;
    Some((read + 1).saturating_sub(youngest))
}

fn transfer_record(payment: &Payment, transfer: &Transfer) -> TransferRecord {
    let (token, token_address): (_, Address) = match transfer.token {
        TransferToken::Right => (Some(payment.terms.token), payment.terms.token_address),
        TransferToken::Other { token, address } => (Some(token), address),
        TransferToken::LookAlike { address } => (None, address),
    };
    TransferRecord {
        tx_hash: transfer.key.tx_hash.to_string(),
        log_index: transfer.key.log_index,
        block_number: transfer.block.number,
        block_time: transfer.block.time.to_string(),
        from: checksummed(transfer.from),
        amount: transfer.amount.to_string(),
        token: token.map(payferry_domain::Token::as_str),
        token_address: checksummed(token_address),
        chain: transfer.key.chain.as_str(),
        status: transfer.status.as_str(),
        kyt_verdict: transfer.decision().map_or("pending", payferry_domain::payment::Decision::as_str),
        counted: transfer.counted,
    }
}

fn kyt_record(verdict: &'static str, details: Option<&Verdict>) -> KytRecord {
    KytRecord {
        verdict,
        risk_level: details.and_then(|verdict| verdict.risk_level.clone()),
        score: details.and_then(|verdict| verdict.score),
        flags: details.map(|verdict| verdict.flags.clone()).unwrap_or_default(),
        provider: details.map(|verdict| verdict.provider.clone()),
        checked_at: details.map(|verdict| verdict.checked_at.to_string()),
    }
}

fn settlement_record(payment: &Payment, settlement: &Settlement) -> SettlementRecord {
    let share = |amount: Amount| payment.terms.purpose.is_pay_in().then(|| amount.to_string());
    SettlementRecord {
        status: settlement.state.as_str(),
        amount: settlement.amount.to_string(),
        psp_amount: share(settlement.psp_amount),
        treasury_fee: share(settlement.treasury_fee),
        tx_hash: settlement.tx_hash.map(|hash| hash.to_string()),
        settled_at: settlement.settled_at.map(|at| at.to_string()),
    }
}

/// The candidates of `best`; `None` if the request named the chain.
pub(super) fn chain_candidates(payment: &Payment) -> Option<Vec<ChainCandidateRecord>> {
    let ChainChoice::Best { candidates } = &payment.terms.chain_choice else { return None };
    let record = |candidate: &payferry_domain::payment::ChainCandidate| ChainCandidateRecord {
        chain: candidate.chain.as_str(),
        eligible: candidate.eligible,
        chosen: candidate.chain == payment.terms.chain,
        reason: candidate.reason.clone(),
    };
    Some(candidates.iter().map(record).collect())
}

fn history(payment: &Payment) -> Vec<HistoryRecord> {
    let record = |(entry, status): (&HistoryEntry, &'static str)| HistoryRecord {
        status,
        at: entry.at.to_string(),
        reason: entry.reason.as_str(),
    };
    payment.public_history().map(record).collect()
}
