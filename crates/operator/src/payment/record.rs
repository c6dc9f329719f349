//! Payment in the response of `/ops/actors/{actor_id}`. It contains no personal data of a payer and no secrets: no
//! metadata, no magic link, and no query of a webhook's URL.

mod money;
mod sending;

use payferry_accounts::Moment;
use payferry_actors::system::PaymentView;
use payferry_domain::payment::{Effect, Event, FailureReason, HistoryEntry, Label, Status, Transfer, resume};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::ApiError;
use payferry_runtime::observe::Incident;
use serde::Serialize;
use serde_json::Value;

use crate::decisions::aside::AsideLine;
use crate::payment::record::money::{
    RefundRecord, SettlementRecord, TransferRecord, refund_record, settlement_record, transfer_record,
};
use crate::payment::record::sending::{DeliveryRecord, OperationRecord, delivery_record, operation_record};
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
    set_aside: Vec<AsideLine>,
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
