//! On-chain operations of a payment with their transactions, and its webhooks with each delivery attempt.

use payferry_accounts::Moment;
use payferry_domain::{Amount, Timestamp};
use payferry_journal::webhooks::log::LogEntry;
use serde::Serialize;
use url::Url;

use crate::payment::Operation;

#[derive(Debug, Serialize)]
pub(super) struct OperationRecord {
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
pub(super) struct TransactionRecord {
    sender: String,
    nonce: i64,
    status: String,
    gas_limit: i64,
    tx_hash: Option<String>,
    block_number: Option<i64>,
    /// Every signature of the transaction.
    signed: Vec<SignedRecord>,
}

#[derive(Debug, Serialize)]
pub(super) struct SignedRecord {
    tx_hash: String,
    at: Moment,
    max_fee_per_gas: String,
    max_priority_fee_per_gas: String,
}

#[derive(Debug, Serialize)]
pub(super) struct DeliveryRecord {
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
pub(super) struct AttemptRecord {
    number: i64,
    at: Moment,
    url: String,
    response_code: Option<i64>,
    response_body: Option<String>,
    duration_ms: i64,
    error: Option<String>,
}

pub(super) fn operation_record(operation: Operation) -> OperationRecord {
    let Operation { row, transaction } = operation;
    let moment = |at| Moment(Timestamp(at));
    OperationRecord {
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

pub(super) fn delivery_record(entry: LogEntry) -> DeliveryRecord {
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
