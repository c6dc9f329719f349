//! Rows that are not complete table rows, as parameters of statements. Field names are column names.

use payferry_entities::{payments, sendings};
use sea_orm::Value;
use serde::Serialize;

use super::Renumbering;
use super::insert::Bound;

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

impl Bound for Advance<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([
            self.id.into(),
            self.version.into(),
            self.status.into(),
            self.live.into(),
            self.attention.into(),
            self.amount_received.into(),
            self.expires_at.into(),
            self.updated_at.into(),
            self.state.into(),
        ]);
    }
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
pub(super) struct OutboundAdvance<'a> {
    pub(super) id: &'a str,
    pub(super) version: i64,
    pub(super) status: &'a str,
    pub(super) live: bool,
    pub(super) in_review: bool,
    pub(super) updated_at: i64,
    pub(super) state: &'a str,
}

impl<'a> From<&'a sendings::Model> for OutboundAdvance<'a> {
    fn from(row: &'a sendings::Model) -> Self {
        let sendings::Model { id, version, status, live, in_review, updated_at, state, .. } = row;
        let (version, live, in_review, updated_at) = (*version, *live, *in_review, *updated_at);
        Self { id, version, status, live, in_review, updated_at, state }
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

pub(super) struct SubmittedOperation<'a> {
    pub(super) id: &'a str,
    pub(super) revision: i64,
    pub(super) chain_tx_id: i64,
    pub(super) updated_at: i64,
}

impl Bound for SubmittedOperation<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([self.id.into(), self.revision.into(), self.chain_tx_id.into(), self.updated_at.into()]);
    }
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

pub(super) struct EventRow<'a> {
    pub(super) id: &'a str,
    pub(super) psp_id: &'a str,
    pub(super) payment_id: &'a str,
    pub(super) sequence: i64,
    pub(super) name: &'a str,
    pub(super) payload: &'a str,
    pub(super) created_at: i64,
}

impl Bound for EventRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([
            self.id.into(),
            self.psp_id.into(),
            self.payment_id.into(),
            self.sequence.into(),
            self.name.into(),
            self.payload.into(),
            self.created_at.into(),
        ]);
    }
}

pub(super) struct OperationRow<'a> {
    pub(super) id: &'a str,
    pub(super) updated_at: i64,
}

impl Bound for OperationRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([self.id.into(), self.updated_at.into()]);
    }
}

pub(super) struct SuccessRow<'a> {
    pub(super) id: &'a str,
    pub(super) updated_at: i64,
    pub(super) revision: i64,
}

impl Bound for SuccessRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([self.id.into(), self.updated_at.into(), self.revision.into()]);
    }
}

#[derive(Serialize)]
pub(super) struct CounterRow<'a> {
    pub(super) name: &'a str,
    pub(super) count: usize,
}

#[derive(Serialize)]
pub(super) struct CounterLowestRow<'a> {
    pub(super) name: &'a str,
    pub(super) lowest: i64,
}

#[derive(Serialize)]
pub(super) struct NumberLostRow<'a> {
    pub(super) id: &'a str,
    pub(super) number: i64,
    pub(super) revision: i64,
    pub(super) failure: &'a str,
    pub(super) updated_at: i64,
}

impl<'a> From<&'a Renumbering> for NumberLostRow<'a> {
    fn from(renumbering: &'a Renumbering) -> Self {
        let Renumbering { id, number, revision, failure, at, .. } = renumbering;
        Self { id, number: *number, revision: *revision, failure, updated_at: *at }
    }
}

#[derive(Serialize)]
pub(super) struct NumberRow<'a> {
    pub(super) id: &'a str,
    pub(super) number: i64,
}

pub(super) struct OperationOutcomeRow<'a> {
    pub(super) id: &'a str,
    pub(super) status: &'a str,
    pub(super) chain_tx_id: Option<i64>,
    pub(super) tx_hash: Option<&'a str>,
    pub(super) block_number: Option<i64>,
    pub(super) amount: Option<i64>,
    pub(super) psp_amount: Option<i64>,
    pub(super) treasury_fee: Option<i64>,
    pub(super) failure: Option<&'a str>,
    pub(super) not_before: i64,
    pub(super) updated_at: i64,
}

impl Bound for OperationOutcomeRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([
            self.id.into(),
            self.status.into(),
            self.chain_tx_id.into(),
            self.tx_hash.into(),
            self.block_number.into(),
            self.amount.into(),
            self.psp_amount.into(),
            self.treasury_fee.into(),
            self.failure.into(),
            self.not_before.into(),
            self.updated_at.into(),
        ]);
    }
}

pub(super) struct RefusedRow<'a> {
    pub(super) id: &'a str,
    pub(super) revision: i64,
    pub(super) failure: &'a str,
    pub(super) updated_at: i64,
}

impl Bound for RefusedRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([self.id.into(), self.revision.into(), self.failure.into(), self.updated_at.into()]);
    }
}

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

impl Bound for DeliveryRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([
            self.id.into(),
            self.status.into(),
            self.url.into(),
            self.attempt_count.into(),
            self.retries_left.into(),
            self.next_attempt_at.into(),
            self.response_code.into(),
            self.response_body.into(),
            self.duration_ms.into(),
            self.error.into(),
            self.updated_at.into(),
        ]);
    }
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

pub(super) struct AppliedRow<'a> {
    pub(super) chain: &'a str,
    pub(super) tx_hash: &'a str,
    pub(super) log_index: i64,
    pub(super) applied_revision: i64,
    pub(super) applied_version: i64,
}

impl Bound for AppliedRow<'_> {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend([
            self.chain.into(),
            self.tx_hash.into(),
            self.log_index.into(),
            self.applied_revision.into(),
            self.applied_version.into(),
        ]);
    }
}
