//! Payment in the response of `/ops/actors/{actor_id}`. It contains no personal data of a payer and no secrets: no
//! metadata, no magic link, and no query of a webhook's URL.

mod outbound;

use payferry_accounts::Moment;
use payferry_actors::system::PaymentView;
use payferry_domain::Token;
use payferry_domain::payment::{
    Decision, Effect, Event, FailureReason, HistoryEntry, Label, Payment, Refund, Settlement, Status, Transfer,
    TransferToken, resume,
};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::ApiError;
use payferry_runtime::observe::Incident;
use serde::Serialize;
use serde_json::Value;

use crate::decisions::aside::SetAsideLine;
use crate::payment::record::outbound::{DeliveryRecord, OperationRecord, delivery_record, operation_record};
use crate::payment::{PaymentFacts, Transition};

/// All data of one payment.
#[derive(Debug, Serialize)]
pub(crate) struct PaymentRecord {
    payment_id: String,
    psp_id: String,
    psp_name: String,
    merchant_id: Option<String>,
    customer_id: Option<String>,
    reference: Option<String>,
    status: Status,
    labels: Vec<Label>,
    failure_reason: Option<FailureReason>,
    /// Label that needs an operator.
    attention: Option<Label>,
    /// True if the service still has work to do for it.
    live: bool,
    version: u32,
    /// Number of events published so far.
    sequence: u32,
    amount: String,
    amount_received: String,
    excess_received: String,
    amount_due: String,
    /// Counted money that its wallet should hold.
    in_wallet: String,
    currency: &'static str,
    token_address: String,
    chain: &'static str,
    wallet: String,
    fee_bps: u16,
    kyt_verdict: &'static str,
    created_at: Moment,
    updated_at: Moment,
    expires_at: Moment,
    first_expires_at: Moment,
    /// Deadline as the chain decides it: later than `expires_at` while the service waits for reorged money.
    deadline: Moment,
    outages: usize,
    settlement: Option<SettlementRecord>,
    refunds: Vec<RefundRecord>,
    transfers: Vec<TransferRecord>,
    history: Vec<HistoryRecord>,
    transitions: Vec<TransitionRecord>,
    /// Transfers in its wallet that are not listed because the list is full. They are not counted.
    set_aside: Vec<SetAsideLine>,
    operations: Vec<OperationRecord>,
    deliveries: Vec<DeliveryRecord>,
    /// Pending effects according to its row.
    owes: Vec<Effect>,
    shard: Option<usize>,
    /// Null if no work is pending. The next event starts the actor.
    actor: Option<PaymentView>,
    incidents: Vec<Incident>,
}

#[derive(Debug, Serialize)]
struct HistoryRecord {
    status: Status,
    at: Moment,
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct TransitionRecord {
    version: u32,
    at: Moment,
    events: Vec<Value>,
}

impl PaymentRecord {
    pub(crate) fn of(facts: PaymentFacts) -> Result<Self, ApiError> {
        let payment = &facts.payment;
        let terms = &payment.terms;
        let transfer =
            |transfer: &Transfer| transfer_record(payment, transfer, facts.row_revisions.get(&transfer.key).copied());
        Ok(Self {
            payment_id: terms.id.to_string(),
            psp_id: terms.psp_id.to_string(),
            psp_name: facts.psp_name,
            merchant_id: terms.merchant_id.map(|id| id.to_string()),
            customer_id: terms.customer_id.map(|id| id.to_string()),
            reference: terms.reference.clone(),
            status: payment.status,
            labels: payment.labels.iter().collect(),
            failure_reason: payment.failure_reason,
            attention: payment.attention(),
            live: payment.is_live(),
            version: payment.version,
            sequence: payment.sequence,
            amount: terms.amount.to_string(),
            amount_received: payment.amount_received().to_string(),
            excess_received: payment.excess_received().to_string(),
            amount_due: payment.amount_due().to_string(),
            in_wallet: payment.in_wallet().to_string(),
            currency: terms.token.as_str(),
            token_address: checksummed(terms.token_address),
            chain: terms.chain.as_str(),
            wallet: checksummed(terms.wallet),
            fee_bps: terms.fee_bps.get(),
            kyt_verdict: payment.kyt().as_str(),
            created_at: terms.created_at.into(),
            updated_at: payment.updated_at.into(),
            expires_at: payment.expires_at.into(),
            first_expires_at: payment.first_expires_at.into(),
            deadline: payment.deadline().into(),
            outages: payment.outages.len(),
            settlement: payment.settlement.as_deref().map(settlement_record),
            refunds: payment.refunds.iter().map(refund_record).collect(),
            transfers: payment.transfers.iter().map(transfer).collect(),
            history: payment.history.iter().map(history_record).collect(),
            transitions: facts.transitions.iter().map(transition_record).collect::<Result<_, _>>()?,
            set_aside: facts.set_aside,
            operations: facts.operations.into_iter().map(operation_record).collect(),
            deliveries: facts.deliveries.into_iter().map(delivery_record).collect(),
            owes: resume(payment),
            shard: facts.shard,
            actor: facts.actor,
            incidents: facts.incidents,
        })
    }
}

fn history_record(entry: &HistoryEntry) -> HistoryRecord {
    HistoryRecord { status: entry.status, at: entry.at.into(), reason: entry.reason.as_str() }
}

fn transition_record(transition: &Transition) -> Result<TransitionRecord, ApiError> {
    let event = |event: &Event| -> Result<Value, ApiError> {
        let mut value = serde_json::to_value(event)?;
        if let Some(terms) = value.get_mut("terms").and_then(Value::as_object_mut) {
            terms.remove("link_token");
            terms.remove("metadata");
        }
        Ok(value)
    };
    let events = transition.events.iter().map(event).collect::<Result<_, _>>()?;
    Ok(TransitionRecord { version: transition.version, at: transition.at.into(), events })
}

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
