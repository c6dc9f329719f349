//! A payment in answers.

use payferry_domain::payment::{
    ChainCandidate, ChainChoice, Decision, HistoryEntry, Label, OfferedChain, Payment, PublicFailure, Settlement,
    SettlementState, Transfer, TransferStatus, TransferToken, Verdict,
};
use payferry_domain::{Address, Amount, Chain, Finality, Token};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::lists::DateTime;
use serde_json::{Map, Value};

use super::Addresses;
use super::authorize::{AuthorizationRecord, PaymentMethodRecord};
use super::payer_requests::RefundRequestRecord;
use super::refunds::RefundRecord;
use crate::http::state::AppShared;

record! {
    /// Builds the record, with confirmations as this process currently sees the chain.
    pub fn of(app: &AppShared, payment: &Payment) {
        let terms = &payment.terms;
        let kyt = payment.kyt();
        let failure = payment.public_failure();
        let addresses = Addresses::of(terms);
        let payment_uri = addresses.payment_uri(app.system.chains(), payment);
        let payment_methods = PaymentMethodRecord::all(app, payment, &addresses, payment_uri.as_deref());
        let (required_confirmations, required_finality) = match payment.required_finality() {
            Finality::Blocks(blocks) => (Some(blocks), "blocks"),
            Finality::Safe => (None, "safe"),
            Finality::Finalized => (None, "finalized"),
        };
    }

    /// A complete payment. Amounts are decimal strings, times ISO 8601. Values that do not apply (yet) are null.
    #[derive(Debug)]
    pub struct PaymentRecord {
        #[schema(example = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = terms.public_id(),
        /// The same as `id`.
        payment_id: String = terms.public_id(),
        /// pending, confirmed, settled, mismatched or failed; `labels` has details. For a transfer to a customer: pending,
        /// underpaid, settled or failed.
        status: &'static str = payment.public_status(),
        /// Absent for a transfer to a customer.
        merchant_id: Option<String> = terms.merchant_id.map(|id| id.to_string()),
        customer_id: Option<String> = terms.customer_id.map(|id| id.to_string()),
        /// The PSP's own reference.
        reference: Option<String> = terms.reference.clone(),
        /// Description of the order, as the payer's page shows it.
        description: Option<String> = terms.description.clone(),
        /// The amount due.
        #[schema(example = "10.00")]
        amount: String = terms.amount.to_string(),
        /// Amount counted at or before confirmation; does not change after it.
        amount_received: String = payment.amount_received().to_string(),
        /// Amount counted after confirmation.
        excess_received: String = payment.excess_received().to_string(),
        /// Amount still to be paid.
        amount_due: String = payment.amount_due().to_string(),
        /// USDC or USDT.
        currency: &'static str = terms.token.as_str(),
        /// The chain on which the payment is due. Null until the payer has chosen it.
        chain: Option<&'static str> = payment.chain().map(Chain::as_str),
        /// The token's contract. Transfers of other contracts do not count. Null until the payer has chosen the chain.
        token_address: Option<String> = payment.chain().map(|_| addresses.token.clone()),
        /// The address to which the payer sends the money.
        intermediary_wallet: String = addresses.wallet.clone(),
        /// URL of the payer's page.
        magic_link: String = app.magic_link(&terms.link_token),
        /// EIP-681 URI for wallets: a transfer of the amount still due. Null once the payment no longer expects money.
        payment_uri: Option<String> = payment_uri,
        /// UNDERPAID, OVERPAID, LATE, MULTIPLE, EXCESS, REORGED, WRONG_TOKEN, WRONG_CHAIN, IN_REVIEW, FUNDS_BLOCKED,
        /// SETTLEMENT_FAILED, REFUND_APPROVAL or AUTHORIZED.
        labels: Vec<&'static str> = payment.labels.iter().map(Label::as_str).collect(),
        /// expired, kyt_blocked, settlement_failed or cancelled; for a transfer to a customer also mismatched. Null unless
        /// `status` is failed.
        failure_reason: Option<&'static str> = failure.map(PublicFailure::as_str),
        /// The failure reason in words.
        failure: Option<&'static str> = failure.map(PublicFailure::words),
        /// Blocks from the latest transfer's block to the last block read, both included; 0 without a transfer, null while
        /// the chain is not read.
        confirmations: Option<u64> = confirmations(app, payment),
        /// Required blocks; null if `required_finality` is not blocks.
        required_confirmations: Option<u32> = required_confirmations,
        /// blocks, safe or finalized.
        required_finality: &'static str = required_finality,
        transfers: Vec<TransferRecord> =
            payment.transfers.iter().map(|transfer| TransferRecord::of(payment, transfer)).collect(),
        kyt: KytRecord = KytRecord::of(kyt.as_str(), kyt.verdict),
        /// The same as `kyt.verdict`.
        kyt_verdict: &'static str = kyt.as_str(),
        /// The last authorization of a payer, if there was one.
        authorization: Option<AuthorizationRecord> =
            payment.authorization.as_deref().map(|last| AuthorizationRecord::of(app, payment, last)),
        /// The ways to pay now; empty if the payment no longer expects money.
        payment_methods: Vec<PaymentMethodRecord> = payment_methods,
        /// Present once the payment was confirmed.
        settlement: Option<SettlementRecord> =
            payment.settlement.as_deref().map(|settlement| SettlementRecord::of(payment, settlement)),
        refunds: Vec<RefundRecord> = RefundRecord::all(payment),
        /// Requests of payers for refunds, in the order of their arrival.
        refund_requests: Vec<RefundRequestRecord> = RefundRequestRecord::all(payment),
        /// With `best` and `payer`: the candidate chains.
        #[serde(skip_serializing_if = "Option::is_none")]
        chain_candidates: Option<Vec<ChainCandidateRecord>> = chain_candidates(payment),
        /// As submitted.
        #[schema(value_type = Option<Object>, additional_properties)]
        metadata: Option<Map<String, Value>> = terms.metadata.clone(),
        status_history: Vec<HistoryRecord> =
            payment.public_history().map(|(entry, status)| HistoryRecord::of(entry, status)).collect(),
        /// Postponed by outages of the chain.
        expires_at: DateTime = payment.expires_at.into(),
        created_at: DateTime = terms.created_at.into(),
        updated_at: DateTime = payment.updated_at.into(),
    }
}

record! {
    fn of(payment: &Payment, transfer: &Transfer) {
        let (token, token_address): (_, Address) = match transfer.token {
            TransferToken::Right => (Some(payment.terms.token), payment.terms.token_address),
            TransferToken::Other { token, address } => (Some(token), address),
            TransferToken::LookAlike { address } => (None, address),
        };
    }

    /// A token movement to the wallet.
    #[derive(Debug)]
    struct TransferRecord {
        tx_hash: String = transfer.key.tx_hash.to_string(),
        log_index: u32 = transfer.key.log_index,
        block_hash: String = transfer.key.block_hash.to_string(),
        block_number: u64 = transfer.block.number,
        block_time: DateTime = transfer.block.time.into(),
        from: String = checksummed(transfer.from),
        amount: String = transfer.amount.to_string(),
        /// USDC or USDT; null for a token that the service does not support.
        token: Option<&'static str> = token.map(Token::as_str),
        token_address: String = checksummed(token_address),
        chain: &'static str = transfer.key.chain.as_str(),
        /// seen, final, orphaned or ignored.
        status: &'static str = transfer.status.as_str(),
        /// pending, allow, review or block.
        kyt_verdict: &'static str = transfer.decision().map_or("pending", Decision::as_str),
        /// True if it is part of the received amount.
        counted: bool = transfer.counted,
    }
}

record! {
    fn of(verdict: &'static str, details: Option<&Verdict>) {}

    /// Screening result: of the settled money once the payment is confirmed, else the worst of the received transfers.
    #[derive(Debug)]
    struct KytRecord {
        /// pending, allow, review or block.
        verdict: &'static str = verdict,
        risk_level: Option<String> = details.and_then(|verdict| verdict.risk_level.clone()),
        /// 0 to 100.
        score: Option<u8> = details.and_then(|verdict| verdict.score),
        flags: Vec<String> = details.map(|verdict| verdict.flags.clone()).unwrap_or_default(),
        provider: Option<String> = details.map(|verdict| verdict.provider.clone()),
        checked_at: Option<DateTime> = details.map(|verdict| verdict.checked_at.into()),
    }
}

record! {
    fn of(payment: &Payment, settlement: &Settlement) {
        let share = |amount: Amount| payment.terms.purpose.is_pay_in().then(|| amount.to_string());
        let failure = (settlement.state == SettlementState::Failed).then_some(PublicFailure::SettlementFailed);
    }

    /// How the amount is divided: `psp_amount` and `treasury_fee` add up to `amount`. Both are null for a transfer to a
    /// customer, who receives all of it.
    #[derive(Debug)]
    struct SettlementRecord {
        /// queued, settled, failed or withdrawn.
        status: &'static str = settlement.state.as_str(),
        amount: String = settlement.amount.to_string(),
        psp_amount: Option<String> = share(settlement.psp_amount),
        treasury_fee: Option<String> = share(settlement.treasury_fee),
        tx_hash: Option<String> = settlement.tx_hash.map(|hash| hash.to_string()),
        settled_at: Option<DateTime> = settlement.settled_at.map(DateTime::from),
        /// settlement_failed, while it is failed.
        failure_reason: Option<&'static str> = failure.map(PublicFailure::as_str),
        /// The failure reason in words.
        failure: Option<&'static str> = failure.map(PublicFailure::words),
    }
}

record! {
    fn of(payment: &Payment, candidate: &ChainCandidate) {}

    /// A candidate chain.
    #[derive(Debug)]
    pub(super) struct ChainCandidateRecord {
        chain: &'static str = candidate.chain.as_str(),
        /// True if it could have been chosen.
        eligible: bool = candidate.eligible,
        /// True if it was chosen.
        chosen: bool = Some(candidate.chain) == payment.chain(),
        reason: String = candidate.reason.clone(),
    }
}

record! {
    fn of(entry: &HistoryEntry, status: &'static str) {}

    /// One entry of the status history.
    #[derive(Debug)]
    struct HistoryRecord {
        status: &'static str = status,
        at: DateTime = entry.at.into(),
        reason: &'static str = entry.reason.as_str(),
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
pub(in crate::http) fn progress(app: &AppShared, payment: &Payment) -> Option<Progress> {
    let waits = |transfer: &Transfer| transfer.is_right() && transfer.status == TransferStatus::Seen;
    let Finality::Blocks(required) = payment.required_finality() else { return None };
    if !payment.transfers.iter().any(waits) {
        return None;
    }
    let required = u64::from(required);
    Some(Progress { confirmations: confirmations(app, payment)?.min(required), required })
}

/// Confirmations of the latest transfer that may count.
fn confirmations(app: &AppShared, payment: &Payment) -> Option<u64> {
    let present = payment.transfers.iter().filter(|transfer| transfer.is_right() && transfer.is_present());
    let Some(youngest) = present.map(|transfer| transfer.block.number).max() else { return Some(0) };
    let read = app.system.chain_view(payment.terms.chain)?.read_number;
    Some((read + 1).saturating_sub(youngest))
}

/// The candidates of `best`, or those that the payer can choose; `None` if the request named the chain.
pub(super) fn chain_candidates(payment: &Payment) -> Option<Vec<ChainCandidateRecord>> {
    let offer = |offer: &OfferedChain| {
        let reason = if payment.chain() == Some(offer.chain) { "chosen by the payer" } else { "offered to the payer" };
        ChainCandidate { chain: offer.chain, eligible: true, reason: reason.to_owned() }
    };
    let candidates = match &payment.terms.chain_choice {
        ChainChoice::Asked => return None,
        ChainChoice::Best { candidates } => candidates,
        ChainChoice::Payer { offered } => &offered.iter().map(offer).collect(),
    };
    Some(candidates.iter().map(|candidate| ChainCandidateRecord::of(payment, candidate)).collect())
}
