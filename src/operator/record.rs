//! A payment as `/ops/actors/{payment_id}` answers it. Nothing that identifies a payer's person, and nothing that opens
//! anything, is in it: no metadata, no magic link, no query of a webhook's URL.

use payferry_actors::system::PaymentView;
use payferry_actors::wallet::checksummed;
use payferry_actors::webhook::log::LogEntry;
use payferry_domain::Timestamp;
use payferry_domain::payment::{
    Effect, Event, FailureReason, HistoryEntry, Label, Refund, Settlement, Status, Transfer, TransferToken, resume,
};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::read::Moment;
use super::read::payment::{Operation, PaymentFacts, Transition};
use crate::http::error::ApiError;

/// Everything of one payment.
#[derive(Debug, Serialize)]
pub(super) struct PaymentRecord {
    payment_id: String,
    psp_id: String,
    psp_name: String,
    merchant_id: String,
    customer_id: Option<String>,
    reference: Option<String>,
    status: Status,
    labels: Vec<Label>,
    failure_reason: Option<FailureReason>,
    /// What of it wants an operator.
    attention: Option<Label>,
    /// Whether something is still to happen by itself.
    live: bool,
    version: u32,
    /// Events announced so far.
    sequence: u32,
    amount: String,
    amount_received: String,
    excess_received: String,
    amount_due: String,
    /// What its wallet should hold of money that counts.
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
    /// As the chain decides it: later than `expires_at` while money that was taken back is waited for.
    deadline: Moment,
    outages: usize,
    settlement: Option<SettlementRecord>,
    refunds: Vec<RefundRecord>,
    transfers: Vec<TransferRecord>,
    history: Vec<HistoryRecord>,
    transitions: Vec<TransitionRecord>,
    operations: Vec<OperationRecord>,
    deliveries: Vec<DeliveryRecord>,
    /// What its row says is still to be done.
    owes: Vec<Effect>,
    shard: Option<usize>,
    /// Null if nothing is left to happen by itself: whatever arrives wakes it.
    actor: Option<PaymentView>,
    incidents: Vec<payferry_actors::observe::Incident>,
}

#[derive(Debug, Serialize)]
struct SettlementRecord {
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
struct RefundRecord {
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
struct TransferRecord {
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
    /// The newest revision of the watcher's row that the payment took in.
    revision: u32,
    /// The newest revision of the watcher's row; null if it has none.
    row_revision: Option<i64>,
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

#[derive(Debug, Serialize)]
struct OperationRecord {
    operation_id: String,
    number: i64,
    kind: String,
    chain: String,
    status: String,
    amount: String,
    recipient: Option<String>,
    failure: Option<String>,
    revision: i64,
    attempts: i64,
    not_before: Moment,
    created_at: Moment,
    updated_at: Moment,
    transaction: Option<TransactionRecord>,
}

#[derive(Debug, Serialize)]
struct TransactionRecord {
    sender: String,
    nonce: i64,
    status: String,
    gas_limit: i64,
    tx_hash: Option<String>,
    block_number: Option<i64>,
    /// Each time it was signed.
    signed: Vec<SignedRecord>,
}

#[derive(Debug, Serialize)]
struct SignedRecord {
    tx_hash: String,
    at: Moment,
    max_fee_per_gas: String,
    max_priority_fee_per_gas: String,
}

#[derive(Debug, Serialize)]
struct DeliveryRecord {
    delivery_id: String,
    event_id: String,
    event: String,
    sequence: i64,
    status: String,
    attempt_count: i64,
    retries_left: i64,
    next_attempt_at: Option<Moment>,
    created_at: Moment,
    attempts: Vec<AttemptRecord>,
}

#[derive(Debug, Serialize)]
struct AttemptRecord {
    number: i64,
    at: Moment,
    url: String,
    response_code: Option<i64>,
    response_body: Option<String>,
    duration_ms: i64,
    error: Option<String>,
}

impl PaymentRecord {
    pub(super) fn of(facts: PaymentFacts) -> Result<Self, ApiError> {
        let payment = &facts.payment;
        let terms = &payment.terms;
        let transfer = |transfer: &Transfer| {
            let row = facts.transfer_rows.iter().find(|row| {
                row.tx_hash == transfer.key.tx_hash.to_string()
                    && row.log_index == i64::from(transfer.key.log_index)
                    && row.chain == transfer.key.chain.as_str()
            });
            transfer_record(payment, transfer, row.map(|row| row.revision))
        };
        Ok(Self {
            payment_id: terms.id.to_string(),
            psp_id: terms.psp_id.to_string(),
            psp_name: facts.psp_name,
            merchant_id: terms.merchant_id.to_string(),
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
            operations: facts.operations.into_iter().map(operation_record).collect(),
            deliveries: facts.deliveries.into_iter().map(delivery_record).collect(),
            owes: resume(payment),
            shard: facts.shard,
            actor: facts.actor,
            incidents: facts.incidents,
        })
    }
}

fn settlement_record(settlement: &Settlement) -> SettlementRecord {
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

fn refund_record(refund: &Refund) -> RefundRecord {
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

fn transfer_record(
    payment: &payferry_domain::payment::Payment,
    transfer: &Transfer,
    row_revision: Option<i64>,
) -> TransferRecord {
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
        token: token.map(payferry_domain::Token::as_str),
        token_address: checksummed(token_address),
        status: transfer.status.as_str(),
        kyt_verdict: transfer.decision().map_or("pending", payferry_domain::payment::Decision::as_str),
        counted: transfer.counted,
        excess: transfer.excess,
        revision: transfer.revision,
        row_revision,
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

fn operation_record(operation: Operation) -> OperationRecord {
    let Operation { row, transaction } = operation;
    let moment = |at| Moment(Timestamp(at));
    OperationRecord {
        operation_id: row.id,
        number: row.number,
        kind: row.kind,
        chain: row.chain,
        status: row.status,
        amount: payferry_domain::Amount(row.amount).to_string(),
        recipient: row.recipient,
        failure: row.failure,
        revision: row.revision,
        attempts: row.attempts,
        not_before: moment(row.not_before),
        created_at: moment(row.created_at),
        updated_at: moment(row.updated_at),
        transaction: transaction.map(|transaction| TransactionRecord {
            sender: transaction.row.sender,
            nonce: transaction.row.nonce,
            status: transaction.row.status,
            gas_limit: transaction.row.gas_limit,
            tx_hash: transaction.row.tx_hash,
            block_number: transaction.row.block_number,
            signed: transaction
                .attempts
                .into_iter()
                .map(|attempt| SignedRecord {
                    tx_hash: attempt.tx_hash,
                    at: moment(attempt.created_at),
                    max_fee_per_gas: attempt.max_fee_per_gas,
                    max_priority_fee_per_gas: attempt.max_priority_fee_per_gas,
                })
                .collect(),
        }),
    }
}

fn delivery_record(entry: LogEntry) -> DeliveryRecord {
    let LogEntry { delivery, event, attempts } = entry;
    let moment = |at| Moment(Timestamp(at));
    DeliveryRecord {
        delivery_id: delivery.id,
        event_id: event.id,
        event: event.name,
        sequence: event.sequence,
        status: delivery.status,
        attempt_count: delivery.attempt_count,
        retries_left: delivery.retries_left,
        next_attempt_at: delivery.next_attempt_at.map(moment),
        created_at: moment(delivery.created_at),
        attempts: attempts
            .into_iter()
            .map(|attempt| AttemptRecord {
                number: attempt.number,
                at: moment(attempt.at),
                url: without_secrets(&attempt.url),
                response_code: attempt.response_code,
                response_body: attempt.response_body,
                duration_ms: attempt.duration_ms,
                error: attempt.error,
            })
            .collect(),
    }
}

/// A PSP may have put a secret into the query of its URL, or before the host.
pub(super) fn without_secrets(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return String::new() };
    if url.query().is_some() {
        url.set_query(Some("..."));
    }
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn urls_keep_their_secrets() {
        assert_eq!(without_secrets("https://u:p@psp.example/hooks?token=x#y"), "https://psp.example/hooks?...#y");
        assert_eq!(without_secrets("http://127.0.0.1:9/hooks"), "http://127.0.0.1:9/hooks");
        assert_eq!(without_secrets("nonsense"), "");
    }
}
