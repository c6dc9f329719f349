//! The writes of the journal. A write contains all consequences of one fact. It commits or fails as a whole.

use std::sync::Arc;

use payferry_domain::Chain;
use payferry_domain::payment::AlarmKind;
use payferry_entities::{
    ChainTxStatus, DeliveryStatus, OperationStatus, alarms, audit_log, authorizations, chain_cursors, chain_headers,
    chain_outages, chain_tx_attempts, chain_txs, customers, delivery_attempts, deposits, events, idempotency_keys,
    ledger_postings, operations, payment_transitions, payments, refund_requests, refunds, sending_transitions,
    sendings, transfers,
};

use payferry_nodes::Lease;

use super::observer::PaymentMove;

/// Number of retries of the longest schedule of a delivery. A new delivery starts with this many `retries_left`; the first
/// attempt uses none of them. The schedule of the endpoint decides how many of them it has.
pub const DELIVERY_RETRIES_MAX: i64 = 10;

/// One write. Boxed, so that the queue contains only pointers. A write with a [`Lease`] has the precondition that the row of
/// the lease still has this owner and epoch.
#[derive(Debug)]
pub enum JournalWrite {
    /// A new payment.
    Initiation(Box<Initiation>),
    /// A new customer.
    Customer(Box<CustomerCreation>),
    /// Recorded events of customers that go into the feed. Precondition: none is in the feed yet.
    CustomerEvents(Box<[NewEvent]>),
    /// An audit entry of a request that changes nothing, such as a read of personal data. Its `number` is ignored; the
    /// database assigns it.
    Audit(Box<audit_log::Model>),
    /// A transition of an existing payment.
    Transition(Box<JournalTransition>),
    /// A new or changed payout or withdrawal.
    OutboundTransfer(Box<OutboundChange>),
    /// Facts that a payment, payout, or withdrawal processed without a change, because they were outdated or
    /// irrelevant.
    TransfersApplied(Box<TransfersApplied>),
    /// Blocks that were read completely.
    ChainBatch(Lease, Box<ChainBatch>),
    /// Outcomes of webhook attempts at different deliveries. An attempt whose number is recorded already is skipped.
    Deliveries(Arc<[DeliveryOutcome]>),
    /// A signed transaction of the operator account, before its broadcast.
    Submission(Lease, Box<ChainTxSubmission>),
    /// A nonce that was signed again with higher fees, before its broadcast.
    Attempt(Lease, Box<chain_tx_attempts::Model>),
    /// The outcome of a transaction of the operator account and of its operations.
    ChainTxOutcome(Lease, Box<ChainTxOutcome>),
    /// Operations that must not be signed.
    Refusal(Lease, Box<OperationRefusal>),
}

/// A new payment. Precondition: its idempotency key, if any, is new.
#[derive(Debug)]
pub struct Initiation {
    /// The row, at version 1.
    pub payment: payments::Model,
    /// First transition.
    pub transition: payment_transitions::Model,
    /// Idempotency key of the caller with the response, which is known before the commit.
    pub idempotency: Option<idempotency_keys::Model>,
    /// Audit entry, if the request is audited. Its `number` is ignored; the database assigns it.
    pub audit: Option<audit_log::Model>,
    /// Change of the payment counts by the commit.
    pub(crate) moved: Option<PaymentMove>,
}

/// A new customer. Precondition: the idempotency key of the request, if any, is new.
#[derive(Debug)]
pub struct CustomerCreation {
    /// The row, at version 1.
    pub customer: customers::Model,
    /// Audit entry. Its `number` is ignored; the database assigns it.
    pub audit: audit_log::Model,
    /// Idempotency key of the caller with the response.
    pub idempotency: Option<idempotency_keys::Model>,
}

/// A transition. Precondition: the row still has the previous version.
#[derive(Debug)]
pub struct JournalTransition {
    /// Row after the transition. The stored version must be `payment.version - 1`.
    pub payment: payments::Model,
    /// Stored transition with its events.
    pub transition: payment_transitions::Model,
    /// Other rows.
    pub consequences: Consequences,
    /// Rows of the refunds that are new or have another status.
    pub refunds: Vec<refunds::Model>,
    /// Rows of the requests for refunds that are new or have another status.
    pub refund_requests: Vec<refund_requests::Model>,
    /// Alarms that it raises.
    pub alarms: Vec<alarms::Model>,
    /// Kinds of alarms of the payment that end with it.
    pub ended_alarms: Vec<AlarmKind>,
    /// Transfer rows that this transition applied.
    pub applied: Vec<AppliedTransfer>,
    /// True if a caller or the next fact of the payment waits for the commit.
    pub is_urgent: bool,
    /// Change of the payment counts by the commit.
    pub(crate) moved: Option<PaymentMove>,
}

/// A payout or a withdrawal. Precondition: none at version 1; later, the row still has the previous version.
#[derive(Debug)]
pub struct OutboundChange {
    /// Row after the change.
    pub outbound: sendings::Model,
    /// Stored transition with its events.
    pub transition: sending_transitions::Model,
    /// Other rows.
    pub consequences: Consequences,
}

/// Rows of a transition beside those of its subject.
#[derive(Debug, Default)]
pub struct Consequences {
    /// Announced events, in order of `sequence`.
    pub announcements: Vec<NewEvent>,
    /// Operations to queue, queue again, or cancel, or that have succeeded.
    pub operations: Vec<OperationChange>,
    /// Ledger postings.
    pub postings: Vec<ledger_postings::Model>,
    /// Required balance, if the transition sends funds. A precondition.
    pub reserve: Option<Reserve>,
    /// Idempotency key of the caller with the response, if a person requested the transition. A precondition.
    pub idempotency: Option<idempotency_keys::Model>,
    /// Audit entry, if the request is audited. Its `number` is ignored; the database assigns it.
    pub audit: Option<audit_log::Model>,
    /// Signature of an accepted authorization.
    pub authorization: Option<authorizations::Model>,
}

/// Funds of a PSP that a commit reserves. Preconditions: the balance is sufficient, and the daily limit is not
/// exceeded. The precondition statement itself changes the balance, not the posting.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// PSP that owns the funds.
    pub psp_id: String,
    /// Chain name.
    pub chain: String,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Base units deducted from the balance; 0 for funds that leave the payment's own vault.
    pub amount: i64,
    /// USDC or USDT, for the daily limit.
    pub token: String,
    /// Days since the epoch, UTC.
    pub day: i64,
    /// Base units that the outbound transfer adds to its day.
    pub day_amount: i64,
    /// Daily limit in base units.
    pub day_amount_max: i64,
}

impl JournalWrite {
    /// Returns true if the write starts something new. Such writes can be rejected at submission, and writes for
    /// existing subjects take precedence.
    pub(crate) const fn is_new(&self) -> bool {
        match self {
            Self::Initiation(_) | Self::Customer(_) | Self::Audit(_) => true,
            Self::OutboundTransfer(change) => change.outbound.version == 1,
            _ => false,
        }
    }

    /// Writes a transition at once, even if it announces nothing.
    pub fn urgent(mut self) -> Self {
        if let Self::Transition(transition) = &mut self {
            transition.is_urgent = true;
        }
        self
    }

    /// Returns the rows beside those of the subject, if the write is a transition.
    pub(crate) fn consequences(&self) -> Option<&Consequences> {
        match self {
            Self::Transition(transition) => Some(&transition.consequences),
            Self::OutboundTransfer(change) => Some(&change.consequences),
            _ => None,
        }
    }

    /// Returns the idempotency key of the caller, if any.
    pub(crate) fn idempotency(&self) -> Option<&idempotency_keys::Model> {
        match self {
            Self::Initiation(initiation) => initiation.idempotency.as_ref(),
            Self::Customer(creation) => creation.idempotency.as_ref(),
            _ => self.consequences()?.idempotency.as_ref(),
        }
    }

    /// Returns the change of the payment counts by the commit.
    pub(crate) fn moved(&self) -> Option<&PaymentMove> {
        match self {
            Self::Initiation(initiation) => initiation.moved.as_ref(),
            Self::Transition(transition) => transition.moved.as_ref(),
            _ => None,
        }
    }

    /// Returns the announced events.
    pub(crate) fn announcements(&self) -> &[NewEvent] {
        match self {
            Self::CustomerEvents(events) => events,
            _ => self.consequences().map_or(&[], |consequences| &consequences.announcements),
        }
    }

    /// Returns the changes of operations, and their time.
    pub(crate) fn operations(&self) -> (&[OperationChange], i64) {
        match self {
            Self::Transition(transition) => (&transition.consequences.operations, transition.transition.at),
            Self::OutboundTransfer(change) => (&change.consequences.operations, change.transition.at),
            Self::TransfersApplied(applied) => (&applied.operations, applied.at),
            _ => (&[], 0),
        }
    }

    /// Returns the ledger postings.
    pub(crate) fn postings(&self) -> &[ledger_postings::Model] {
        self.consequences().map_or(&[], |consequences| &consequences.postings)
    }

    /// Returns the lease that the write needs.
    pub(crate) const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::ChainBatch(lease, _)
            | Self::Submission(lease, _)
            | Self::Attempt(lease, _)
            | Self::ChainTxOutcome(lease, _)
            | Self::Refusal(lease, _) => Some(lease),
            _ => None,
        }
    }

    /// Returns the reserved funds.
    pub(crate) fn reserve(&self) -> Option<&Reserve> {
        self.consequences()?.reserve.as_ref()
    }
}

impl OperationChange {
    /// `op_` id.
    pub fn id(&self) -> &str {
        match self {
            Self::Queue(row) => &row.id,
            Self::Cancel { id } | Self::Succeeded { id, .. } => id,
        }
    }
}

/// Facts that are already known. An earlier revision never overwrites a later one. Precondition: the payment that knows them
/// is unchanged.
#[derive(Debug)]
pub struct TransfersApplied {
    /// The payment that knows them, and its version; `None` for outcomes of outbound transfers, whose end is final.
    pub known_to: Option<(String, i64)>,
    /// Current version of the payment, which does not change; 0 for transfers that it set aside.
    pub version: i64,
    /// Processed transfers.
    pub transfers: Vec<AppliedTransfer>,
    /// Operations whose success was processed.
    pub operations: Vec<OperationChange>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// An event before it has a position in the feed.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Row of the feed. Its `position` is ignored; the database assigns it.
    pub event: events::Model,
    /// The `whd_` id of each of its deliveries, with the endpoint; `None` is the PSP's first endpoint.
    pub deliveries: Vec<(String, Option<String>)>,
}

/// Change of an operation by a transition.
#[derive(Clone, Debug)]
pub enum OperationChange {
    /// Queue the operation. A new row starts at `revision` 1. An existing row (cancelled or failed) is queued again with
    /// these amounts, and its revision is incremented.
    Queue(Box<operations::Model>),
    /// The operation is no longer needed. Only a queued or failed operation becomes cancelled (`revision` is
    /// incremented); one in progress does not change.
    Cancel {
        /// `op_` id.
        id: String,
    },
    /// The success at this revision was processed. Only a mined operation becomes succeeded, unless it was orphaned and
    /// mined again in the meantime.
    Succeeded {
        /// `op_` id.
        id: String,
        /// Revision of the row that succeeded.
        revision: i64,
    },
}

/// A transfer row at the revision that a payment applied.
#[derive(Clone, Debug)]
pub struct AppliedTransfer {
    /// Chain name.
    pub chain: String,
    /// 0x hex.
    pub block_hash: String,
    /// 0x hex.
    pub tx_hash: String,
    /// Index of the log in its block.
    pub log_index: i64,
    /// Applied revision.
    pub revision: i64,
}

/// Completely read blocks. Precondition: the cursor has not moved since the reader loaded it.
#[derive(Debug)]
pub struct ChainBatch {
    /// Chain.
    pub chain: Chain,
    /// Block hash of the previous cursor; `None` for a chain that is read for the first time.
    pub cursor_before: Option<String>,
    /// New cursor.
    pub cursor: chain_cursors::Model,
    /// Hashes of blocks that are no longer in the chain. Their headers are deleted, and their transfers become
    /// orphaned.
    pub orphaned_blocks: Vec<String>,
    /// Headers that were read.
    pub headers: Vec<chain_headers::Model>,
    /// Headers below this number are final and are deleted.
    pub headers_keep_from: i64,
    /// Transfers found. If an existing row was orphaned, it is updated and its `revision` is incremented. `revision` and
    /// `applied_*` of the models are ignored.
    pub transfers: Vec<transfers::Model>,
    /// Transfers from outside to vaults of PSPs. They are posted with the batch that makes their block final.
    pub deposits: Vec<deposits::Model>,
    /// Outages that these blocks ended.
    pub outages: Vec<chain_outages::Model>,
}

/// The outcome of a webhook attempt.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    /// Attempt.
    pub attempt: delivery_attempts::Model,
    /// `delivered`, `failed` or `exhausted`.
    pub status: DeliveryStatus,
    /// Remaining retries after this attempt.
    pub retries_left: i64,
    /// Time of the next attempt, if any.
    pub next_attempt_at: Option<i64>,
    /// True if other deliveries wait until this one is recorded.
    pub is_urgent: bool,
}

/// A signed transaction. Preconditions: the nonce is unused, and each operation is still queued at the signed revision
/// (the payment may have changed its amounts).
#[derive(Debug)]
pub struct ChainTxSubmission {
    /// Transaction; its `id` is assigned in the commit.
    pub chain_tx: chain_txs::Model,
    /// Signed bytes.
    pub attempt: chain_tx_attempts::Model,
    /// Operations in the transaction. They become submitted, their `chain_tx_id` is set, and `attempts` is incremented.
    pub operations: Vec<SignedOperation>,
}

/// A signed operation.
#[derive(Clone, Debug)]
pub struct SignedOperation {
    /// `op_` id.
    pub id: String,
    /// Revision of the row whose amounts were signed.
    pub revision: i64,
}

/// The outcome of a transaction of the operator account. Precondition: the transaction exists.
#[derive(Debug)]
pub struct ChainTxOutcome {
    /// Row id of the transaction.
    pub chain_tx_id: i64,
    /// `submitted` (again, after a reorganisation), `mined`, `final`, `reverted` or `cancelled`.
    pub status: ChainTxStatus,
    /// Transaction hash of the attempt that was mined.
    pub tx_hash: Option<String>,
    /// Block number.
    pub block_number: Option<i64>,
    /// Block hash.
    pub block_hash: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Outcomes of its operations.
    pub operations: Vec<OperationOutcome>,
}

/// Queued operations that must not be signed. There is no precondition for the whole write; each operation fails
/// separately. An operation that is no longer queued, or was queued again since it was read, does not change, because
/// the reason may no longer apply.
#[derive(Debug)]
pub struct OperationRefusal {
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Operations and reasons.
    pub operations: Vec<RefusedOperation>,
}

/// A refused operation.
#[derive(Clone, Debug)]
pub struct RefusedOperation {
    /// `op_` id.
    pub id: String,
    /// Revision of the row that was checked.
    pub revision: i64,
    /// Failure reason.
    pub failure: String,
}

/// Outcome of one operation. It is applied unless the operation is cancelled; `mined` is applied even then. `revision`
/// is incremented. For a succeeded operation it means that its transaction was orphaned, or mined again in another
/// block.
#[derive(Debug)]
pub struct OperationOutcome {
    /// `op_` id.
    pub id: String,
    /// `queued` (again), `submitted`, `mined` or `failed`.
    pub status: OperationStatus,
    /// Transaction of the operation.
    pub tx_hash: Option<String>,
    /// Block in which it was mined.
    pub block_number: Option<i64>,
    /// Amounts that the chain reports as moved; if absent, the amounts of the row.
    pub carried: Option<MovedAmounts>,
    /// Failure reason.
    pub failure: Option<String>,
    /// Earliest time of the next attempt, in milliseconds since the epoch.
    pub not_before: i64,
}

/// Amounts that an operation moved, in base units: the shares of a settlement, which add up to the amount, or the
/// amount of an outbound transfer and zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedAmounts {
    /// Total amount.
    pub amount: i64,
    /// The PSP's share.
    pub psp_amount: i64,
    /// The treasury's share.
    pub treasury_fee: i64,
    /// Index of the contract's event in its block, if the operation is an authorization.
    pub log_index: Option<i64>,
}

/// Result of a commit.
#[derive(Debug, Default)]
pub struct Receipt {
    /// Chain batch: each changed transfer row in its new state (orphaned ones first).
    pub transfers: Vec<transfers::Model>,
    /// Submission: the row id of the transaction.
    pub chain_tx_id: Option<i64>,
    /// Chain transaction outcome or refusal: each changed operation in its new state.
    pub operations: Vec<operations::Model>,
}
