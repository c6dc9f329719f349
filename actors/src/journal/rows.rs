//! Rows that are not a whole row of a table, as the statements take them. Field names are their column names.

use payferry_entities::payments;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Advance<'a> {
    pub(super) id: &'a str,
    pub(super) version: i64,
    pub(super) status: &'a str,
    pub(super) live: bool,
    pub(super) attention: Option<&'a str>,
    pub(super) amount_received: i64,
    pub(super) expires_at: i64,
    pub(super) updated_at: i64,
    pub(super) state: &'a str,
}

impl<'a> From<&'a payments::Model> for Advance<'a> {
    fn from(row: &'a payments::Model) -> Self {
        Self {
            id: &row.id,
            version: row.version,
            status: &row.status,
            live: row.live,
            attention: row.attention.as_deref(),
            amount_received: row.amount_received,
            expires_at: row.expires_at,
            updated_at: row.updated_at,
            state: &row.state,
        }
    }
}

#[derive(Serialize)]
pub(super) struct CursorAdvance<'a> {
    pub(super) chain: &'a str,
    pub(super) hash_before: &'a str,
    pub(super) block_number: i64,
    pub(super) block_hash: &'a str,
    pub(super) block_time: i64,
    pub(super) second_look_from: i64,
    pub(super) epoch: i64,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct SubmittedOperation<'a> {
    pub(super) id: &'a str,
    pub(super) revision: i64,
    pub(super) chain_tx_id: i64,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct ChainTxRow<'a> {
    pub(super) id: i64,
    pub(super) status: &'a str,
    pub(super) tx_hash: Option<&'a str>,
    pub(super) block_number: Option<i64>,
    pub(super) block_hash: Option<&'a str>,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct EventRow<'a> {
    pub(super) id: &'a str,
    pub(super) psp_id: &'a str,
    pub(super) payment_id: &'a str,
    pub(super) sequence: i64,
    pub(super) name: &'a str,
    pub(super) payload: &'a str,
    pub(super) created_at: i64,
}

#[derive(Serialize)]
pub(super) struct OperationRow<'a> {
    pub(super) id: &'a str,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct CounterRow<'a> {
    pub(super) name: &'a str,
    pub(super) count: usize,
}

#[derive(Serialize)]
pub(super) struct OperationOutcomeRow<'a> {
    pub(super) id: &'a str,
    pub(super) status: &'a str,
    pub(super) chain_tx_id: Option<i64>,
    pub(super) tx_hash: Option<&'a str>,
    pub(super) block_number: Option<i64>,
    pub(super) failure: Option<&'a str>,
    pub(super) not_before: i64,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct DeliveryRow<'a> {
    pub(super) id: &'a str,
    pub(super) status: &'a str,
    pub(super) url: &'a str,
    pub(super) attempt_count: i64,
    pub(super) retries_left: i64,
    pub(super) next_attempt_at: Option<i64>,
    pub(super) response_code: Option<i64>,
    pub(super) response_body: Option<&'a str>,
    pub(super) duration_ms: i64,
    pub(super) error: Option<&'a str>,
    pub(super) updated_at: i64,
}

#[derive(Serialize)]
pub(super) struct BlockRow<'a> {
    pub(super) chain: &'a str,
    pub(super) hash: &'a str,
}

#[derive(Serialize)]
pub(super) struct HeightRow<'a> {
    pub(super) chain: &'a str,
    pub(super) number: i64,
}

#[derive(Serialize)]
pub(super) struct AppliedRow<'a> {
    pub(super) chain: &'a str,
    pub(super) tx_hash: &'a str,
    pub(super) log_index: i64,
    pub(super) applied_revision: i64,
    pub(super) applied_version: i64,
}
