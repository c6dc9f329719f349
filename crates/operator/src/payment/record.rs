//! Payment in the response of `/ops/actors/{actor_id}`, with its on-chain operations and each attempt to deliver its
//! webhooks. It contains no personal data of a payer and no secrets: no metadata, no magic link, and no query of a
//! webhook's URL.

use payferry_accounts::Moment;
use payferry_domain::payment::{Decision, Event, Payment, Refund, Settlement, Transfer, TransferToken, resume};
use payferry_domain::{Amount, Timestamp, Token};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_journal::webhooks::log::LogEntry;
use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::payment::{Operation, PaymentFacts, TransactionView, TransitionView};

/// All data of one payment.
pub(crate) fn payment(facts: PaymentFacts) -> Result<impl Serialize, ApiError> {
    let payment = &facts.payment;
    let terms = &payment.terms;
    let transfers = payment.transfers.iter();
    let transfers: Vec<_> =
        transfers.map(|one| transfer(payment, one, facts.row_revisions.get(&one.key).copied())).collect();
    Ok(record! {
        payment_id: terms.id,
        psp_id: terms.psp_id,
        psp_name: facts.psp_name,
        merchant_id: terms.merchant_id,
        customer_id: terms.customer_id,
        reference: terms.reference.clone(),
        status: payment.status,
        labels: payment.labels.iter().collect::<Vec<_>>(),
        failure_reason: payment.failure_reason,
        // Label that needs an operator.
        attention: payment.attention(),
        // True if the service still has work to do for it.
        live: payment.is_live(),
        version: payment.version,
        // Number of events published so far.
        sequence: payment.sequence,
        amount: terms.amount.to_string(),
        amount_received: payment.amount_received().to_string(),
        excess_received: payment.excess_received().to_string(),
        amount_due: payment.amount_due().to_string(),
        // Counted money that its wallet should hold.
        in_wallet: payment.in_wallet().to_string(),
        currency: terms.token.as_str(),
        token_address: checksummed(terms.token_address),
        chain: terms.chain.as_str(),
        wallet: checksummed(terms.wallet),
        fee_bps: terms.fee_bps.get(),
        kyt_verdict: payment.kyt().as_str(),
        created_at: Moment(terms.created_at),
        updated_at: Moment(payment.updated_at),
        expires_at: Moment(payment.expires_at),
        first_expires_at: Moment(payment.first_expires_at),
        // Deadline as the chain decides it: later than `expires_at` while the service waits for reorged money.
        deadline: Moment(payment.deadline()),
        outages: payment.outages.len(),
        settlement: payment.settlement.as_deref().map(settlement),
        refunds: payment.refunds.iter().map(refund).collect::<Vec<_>>(),
        transfers: transfers,
        history: payment
            .history
            .iter()
            .map(|one| record! { status: one.status, at: Moment(one.at), reason: one.reason.as_str() })
            .collect::<Vec<_>>(),
        transitions: facts.transitions.iter().map(transition).collect::<Result<Vec<_>, _>>()?,
        // Transfers in its wallet that are not listed because the list is full. They are not counted.
        set_aside: facts.set_aside,
        operations: facts.operations.into_iter().map(operation).collect::<Vec<_>>(),
        deliveries: facts.deliveries.into_iter().map(delivery).collect::<Vec<_>>(),
        // Pending effects according to its row.
        owes: resume(payment),
        shard: facts.shard,
        // Null if no work is pending. The next event starts the actor.
        actor: facts.actor,
        incidents: facts.incidents,
    })
}

fn transition(transition: &TransitionView) -> Result<impl Serialize + use<>, ApiError> {
    let event = |event: &Event| -> Result<Value, ApiError> {
        let mut value = serde_json::to_value(event)?;
        if let Some(terms) = value.get_mut("terms").and_then(Value::as_object_mut) {
            terms.remove("link_token");
            terms.remove("metadata");
        }
        if let Some(refund) = value.get_mut("refund").and_then(Value::as_object_mut) {
            refund.remove("metadata");
        }
        Ok(value)
    };
    let events = transition.events.iter().map(event).collect::<Result<Vec<_>, _>>()?;
    Ok(record! { version: transition.version, at: Moment(transition.at), events: events })
}

fn settlement(settlement: &Settlement) -> impl Serialize + use<> {
    record! {
        operation_id: settlement.operation,
        status: settlement.state.as_str(),
        amount: settlement.amount.to_string(),
        psp_amount: settlement.psp_amount.to_string(),
        treasury_fee: settlement.treasury_fee.to_string(),
        tx_hash: settlement.tx_hash,
        settled_at: settlement.settled_at.map(Moment),
        failures: settlement.failures,
        failure: settlement.failure.clone(),
        retry_at: settlement.retry_at.map(Moment),
    }
}

fn refund(refund: &Refund) -> impl Serialize + use<> {
    record! {
        refund_id: refund.id,
        status: refund.public_status(),
        amount: refund.amount.to_string(),
        address: checksummed(refund.to),
        tx_hash: refund.tx_hash,
        failure_reason: refund.failure_reason(),
        failure: refund.failure.clone(),
        requested_at: Moment(refund.requested_at),
        approved_at: refund.approved_at.map(Moment),
        finished_at: refund.finished_at.map(Moment),
    }
}

fn transfer(payment: &Payment, transfer: &Transfer, row_revision: Option<i64>) -> impl Serialize + use<> {
    let (token, token_address) = match transfer.token {
        TransferToken::Right => (Some(payment.terms.token), payment.terms.token_address),
        TransferToken::Other { token, address } => (Some(token), address),
        TransferToken::LookAlike { address } => (None, address),
    };
    record! {
        chain: transfer.key.chain.as_str(),
        tx_hash: transfer.key.tx_hash,
        log_index: transfer.key.log_index,
        block_number: transfer.block.number,
        block_time: Moment(transfer.block.time),
        from: checksummed(transfer.from),
        amount: transfer.amount.to_string(),
        token: token.map(Token::as_str),
        token_address: checksummed(token_address),
        status: transfer.status.as_str(),
        kyt_verdict: transfer.decision().map_or("pending", Decision::as_str),
        counted: transfer.counted,
        excess: transfer.excess,
        // Newest revision of the watcher's row that the payment has applied.
        revision: transfer.revision,
        // Newest revision of the watcher's row. Null if there is no row.
        row_revision: row_revision,
    }
}

fn moment(at: i64) -> Moment {
    Moment(Timestamp(at))
}

fn operation(operation: Operation) -> impl Serialize {
    let Operation { row, transaction: carrying } = operation;
    record! {
        operation_id: row.id,
        number: row.number,
        kind: row.kind,
        chain: row.chain,
        status: row.status,
        amount: Amount(row.amount).to_string(),
        recipient: row.recipient,
        failure: row.failure,
        revision: row.revision,
        attempts: row.attempts,
        not_before: moment(row.not_before),
        created_at: moment(row.created_at),
        updated_at: moment(row.updated_at),
        transaction: carrying.map(transaction),
    }
}

fn transaction(transaction: TransactionView) -> impl Serialize {
    let TransactionView { row, attempts } = transaction;
    let signed = attempts.into_iter().map(|attempt| {
        record! {
            tx_hash: attempt.tx_hash,
            at: moment(attempt.created_at),
            max_fee_per_gas: attempt.max_fee_per_gas,
            max_priority_fee_per_gas: attempt.max_priority_fee_per_gas,
        }
    });
    record! {
        sender: row.sender,
        nonce: row.nonce,
        status: row.status,
        gas_limit: row.gas_limit,
        tx_hash: row.tx_hash,
        block_number: row.block_number,
        // Every signature of the transaction.
        signed: signed.collect::<Vec<_>>(),
    }
}

fn delivery(entry: LogEntry) -> impl Serialize {
    let LogEntry { delivery, event, attempts } = entry;
    let attempts = attempts.into_iter().map(|attempt| {
        record! {
            number: attempt.number,
            at: moment(attempt.at),
            url: without_secrets(&attempt.url),
            response_code: attempt.response_code,
            response_body: attempt.response_body,
            duration_ms: attempt.duration_ms,
            error: attempt.error,
        }
    });
    record! {
        delivery_id: delivery.id,
        event_id: event.id,
        event: event.name,
        sequence: event.sequence,
        status: delivery.status,
        attempt_count: delivery.attempt_count,
        next_attempt_at: delivery.next_attempt_at.map(moment),
        created_at: moment(delivery.created_at),
        attempts: attempts.collect::<Vec<_>>(),
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
