//! Payment in the response of `/ops/actors/{actor_id}`, with its on-chain operations and each attempt to deliver its
//! webhooks. It contains no personal data of a payer and no secrets: no metadata, no magic link, and no query of a
//! webhook's URL.

use payferry_domain::payment::{
    Decision, Event, FailureReason, HistoryEntry, Label, Payment, PublicFailure, Refund, RefundFailure, Settlement,
    Transfer, TransferToken, resume,
};
use payferry_domain::{Amount, Token};
use payferry_entities::{chain_tx_attempts, delivery_attempts};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::DateTime;
use payferry_journal::webhooks::log::LogEntry;
use payferry_runtime::observe::Incident;
use serde_json::Value;
use url::Url;

use crate::actors::{ActorRecord, effects};
use crate::decisions::aside::SetAsideLine;
use crate::openapi::{FreeObject, checksummed_text};
use crate::payment::{Operation, PaymentFacts, TransactionView, TransitionView};

record! {
    /// The payment in a response.
    pub(crate) fn of(facts: PaymentFacts) -> Result<Self, ApiError> {
        let payment = &facts.payment;
        let terms = &payment.terms;
        let transfers = payment.transfers.iter();
        let transfers =
            transfers.map(|one| TransferRecord::of(payment, one, facts.row_revisions.get(&one.key).copied())).collect();
    }

    /// All data of one payment.
    pub struct PaymentRecord {
        #[schema(example = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = terms.id.to_string(),
        /// The same as `id`.
        payment_id: String = terms.id.to_string(),
        psp_id: String = terms.psp_id.to_string(),
        psp_name: String = facts.psp_name,
        merchant_id: Option<String> = terms.merchant_id.map(|id| id.to_string()),
        customer_id: Option<String> = terms.customer_id.map(|id| id.to_string()),
        reference: Option<String> = terms.reference.clone(),
        /// pending, confirmed, settled, mismatched or failed.
        status: &'static str = payment.status.as_str(),
        labels: Vec<&'static str> = payment.labels.iter().map(Label::as_str).collect(),
        failure_reason: Option<&'static str> = payment.failure_reason.map(FailureReason::as_str),
        /// The failure reason in words.
        failure: Option<&'static str> = payment.public_failure().map(PublicFailure::words),
        /// Label that needs an operator.
        attention: Option<&'static str> = payment.attention().map(Label::as_str),
        /// True if the service still has work to do for it.
        live: bool = payment.is_live(),
        version: u32 = payment.version,
        /// Number of events published so far.
        sequence: u32 = payment.sequence,
        amount: String = terms.amount.to_string(),
        amount_received: String = payment.amount_received().to_string(),
        excess_received: String = payment.excess_received().to_string(),
        amount_due: String = payment.amount_due().to_string(),
        /// Counted money that its wallet should hold.
        in_wallet: String = payment.in_wallet().to_string(),
        /// USDC or USDT.
        currency: &'static str = terms.token.as_str(),
        token_address: String = checksummed(terms.token_address),
        chain: &'static str = terms.chain.as_str(),
        wallet: String = checksummed(terms.wallet),
        fee_bps: u16 = terms.fee_bps.get(),
        /// pending, allow, review or block.
        kyt_verdict: &'static str = payment.kyt().as_str(),
        created_at: DateTime = terms.created_at.into(),
        updated_at: DateTime = payment.updated_at.into(),
        expires_at: DateTime = payment.expires_at.into(),
        first_expires_at: DateTime = payment.first_expires_at.into(),
        /// Deadline as the chain decides it: later than `expires_at` while the service waits for reorged money.
        deadline: DateTime = payment.deadline().into(),
        outages: usize = payment.outages.len(),
        settlement: Option<SettlementRecord> = payment.settlement.as_deref().map(SettlementRecord::of),
        refunds: Vec<RefundRecord> = payment.refunds.iter().map(RefundRecord::of).collect(),
        transfers: Vec<TransferRecord> = transfers,
        history: Vec<StatusRecord> = payment.history.iter().map(StatusRecord::of).collect(),
        /// The last 500 commits, oldest first.
        transitions: Vec<TransitionRecord> =
            facts.transitions.iter().map(TransitionRecord::of).collect::<Result<_, _>>()?,
        /// Transfers in its wallet that are not listed because the list is full. They are not counted.
        set_aside: Vec<SetAsideLine> = facts.set_aside,
        operations: Vec<OperationRecord> = facts.operations.into_iter().map(OperationRecord::of).collect(),
        deliveries: Vec<DeliveryRecord> = facts.deliveries.into_iter().map(DeliveryRecord::of).collect(),
        /// Pending effects according to its row; `effect` names the kind of each.
        owes: Vec<FreeObject> = effects(&resume(payment))?,
        shard: Option<usize> = facts.shard,
        /// Null if no work is pending. The next event starts the actor.
        actor: Option<ActorRecord> = facts.actor.map(ActorRecord::of).transpose()?,
        /// Failures of its actor, newest first.
        incidents: Vec<Incident> = facts.incidents,
    }
}

record! {
    fn of(entry: &HistoryEntry) {}

    /// A change of the status.
    pub struct StatusRecord {
        status: &'static str = entry.status.as_str(),
        at: DateTime = entry.at.into(),
        reason: &'static str = entry.reason.as_str(),
    }
}

record! {
    fn of(transition: &TransitionView) -> Result<Self, ApiError> {
        let events = transition.events.iter().map(event).collect::<Result<_, ApiError>>()?;
    }

    /// A commit of a payment.
    pub struct TransitionRecord {
        /// Version of the payment after the commit.
        version: u32 = transition.version,
        at: DateTime = transition.at.into(),
        /// Events as they are stored.
        events: Vec<FreeObject> = events,
    }
}

/// An event without the PSP's own data and the secret of the payer's page.
fn event(event: &Event) -> Result<FreeObject, ApiError> {
    let mut value = serde_json::to_value(event)?;
    if let Some(terms) = value.get_mut("terms").and_then(Value::as_object_mut) {
        terms.remove("link_token");
        terms.remove("metadata");
    }
    if let Some(refund) = value.get_mut("refund").and_then(Value::as_object_mut) {
        refund.remove("metadata");
    }
    Ok(value.into())
}

record! {
    fn of(settlement: &Settlement) {}

    /// The settlement of a payment.
    pub struct SettlementRecord {
        operation_id: String = settlement.operation.to_string(),
        /// queued, settled, failed or withdrawn.
        status: &'static str = settlement.state.as_str(),
        amount: String = settlement.amount.to_string(),
        psp_amount: String = settlement.psp_amount.to_string(),
        treasury_fee: String = settlement.treasury_fee.to_string(),
        tx_hash: Option<String> = settlement.tx_hash.map(|hash| hash.to_string()),
        settled_at: Option<DateTime> = settlement.settled_at.map(DateTime::from),
        /// Number of persistent failures.
        failures: u32 = settlement.failures,
        failure: Option<String> = settlement.failure.clone(),
        retry_at: Option<DateTime> = settlement.retry_at.map(DateTime::from),
    }
}

record! {
    fn of(refund: &Refund) {}

    /// A refund of a payment.
    pub struct RefundRecord {
        id: String = refund.id.to_string(),
        /// The same as `id`.
        refund_id: String = refund.id.to_string(),
        /// pending_approval, pending, sent or failed.
        status: &'static str = refund.public_status(),
        amount: String = refund.amount.to_string(),
        address: String = checksummed(refund.to),
        tx_hash: Option<String> = refund.tx_hash.map(|hash| hash.to_string()),
        failure_reason: Option<&'static str> = refund.failure_reason().map(RefundFailure::as_str),
        failure: Option<String> = refund.failure.clone(),
        requested_at: DateTime = refund.requested_at.into(),
        approved_at: Option<DateTime> = refund.approved_at.map(DateTime::from),
        finished_at: Option<DateTime> = refund.finished_at.map(DateTime::from),
        /// The same as `requested_at`.
        created_at: DateTime = refund.requested_at.into(),
        updated_at: DateTime = refund.updated_at().into(),
    }
}

record! {
    fn of(payment: &Payment, transfer: &Transfer, row_revision: Option<i64>) {
        let (token, token_address) = match transfer.token {
            TransferToken::Right => (Some(payment.terms.token), payment.terms.token_address),
            TransferToken::Other { token, address } => (Some(token), address),
            TransferToken::LookAlike { address } => (None, address),
        };
    }

    /// A token movement to the wallet of a payment.
    pub struct TransferRecord {
        chain: &'static str = transfer.key.chain.as_str(),
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
        /// seen, final, orphaned or ignored.
        status: &'static str = transfer.status.as_str(),
        /// pending, allow, review or block.
        kyt_verdict: &'static str = transfer.decision().map_or("pending", Decision::as_str),
        counted: bool = transfer.counted,
        excess: bool = transfer.excess,
        /// Newest revision of the watcher's row that the payment has applied.
        revision: u32 = transfer.revision,
        /// Newest revision of the watcher's row. Null if there is no row.
        row_revision: Option<i64> = row_revision,
    }
}

record! {
    fn of(operation: Operation) {
        let Operation { row, transaction } = operation;
    }

    /// A transfer out of a vault.
    pub struct OperationRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        operation_id: String = row.id,
        kind: String = row.kind,
        chain: String = row.chain,
        status: &'static str = row.status.as_str(),
        amount: String = Amount(row.amount).to_string(),
        recipient: Option<String> = row.recipient.map(checksummed_text),
        failure: Option<String> = row.failure,
        revision: i64 = row.revision,
        attempts: i64 = row.attempts,
        not_before: DateTime = DateTime(row.not_before),
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
        transaction: Option<TransactionRecord> = transaction.map(TransactionRecord::of),
    }
}

record! {
    fn of(transaction: TransactionView) {
        let TransactionView { row, attempts } = transaction;
    }

    /// A transaction that the service signed.
    pub struct TransactionRecord {
        sender: String = checksummed_text(row.sender),
        nonce: i64 = row.nonce,
        status: &'static str = row.status.as_str(),
        gas_limit: i64 = row.gas_limit,
        tx_hash: Option<String> = row.tx_hash,
        block_number: Option<i64> = row.block_number,
        /// Every signature of the transaction.
        signed: Vec<SignatureRecord> = attempts.into_iter().map(SignatureRecord::of).collect(),
    }
}

record! {
    fn of(attempt: chain_tx_attempts::Model) {}

    /// A signature of a transaction.
    pub struct SignatureRecord {
        tx_hash: String = attempt.tx_hash,
        at: DateTime = DateTime(attempt.created_at),
        max_fee_per_gas: String = attempt.max_fee_per_gas,
        max_priority_fee_per_gas: String = attempt.max_priority_fee_per_gas,
    }
}

record! {
    fn of(entry: LogEntry) {
        let LogEntry { delivery, event, attempts } = entry;
    }

    /// A delivery of an event.
    pub struct DeliveryRecord {
        id: String = delivery.id.clone(),
        /// The same as `id`.
        delivery_id: String = delivery.id,
        event_id: String = event.id,
        event: String = event.name,
        sequence: i64 = event.sequence,
        /// queued, delivered, failed, exhausted or cancelled.
        status: &'static str = delivery.status.as_str(),
        attempt_count: i64 = delivery.attempt_count,
        next_attempt_at: Option<DateTime> = delivery.next_attempt_at.map(DateTime),
        created_at: DateTime = DateTime(delivery.created_at),
        updated_at: DateTime = DateTime(delivery.updated_at),
        attempts: Vec<AttemptRecord> = attempts.into_iter().map(AttemptRecord::of).collect(),
    }
}

record! {
    fn of(attempt: delivery_attempts::Model) {}

    /// An attempt to deliver an event.
    pub struct AttemptRecord {
        number: i64 = attempt.number,
        at: DateTime = DateTime(attempt.at),
        /// Without its query and credentials.
        url: String = without_secrets(&attempt.url),
        response_code: Option<i64> = attempt.response_code,
        response_body: Option<String> = attempt.response_body,
        duration_ms: i64 = attempt.duration_ms,
        error: Option<String> = attempt.error,
    }
}

/// Removes the parts of a URL that may hold a PSP's secret: the query, and the text before the host.
fn without_secrets(url: &str) -> String {
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
    fn removes_secrets_from_urls() {
        assert_eq!(without_secrets("https://u:p@psp.example/hooks?token=x#y"), "https://psp.example/hooks?...#y");
        assert_eq!(without_secrets("http://127.0.0.1:9/hooks"), "http://127.0.0.1:9/hooks");
        assert_eq!(without_secrets("nonsense"), "");
    }
}
