//! What the journal writes. A unit is the whole consequence of one fact: it commits or fails as one.

use payferry_domain::Chain;
use payferry_entities::{
    audit_log, chain_cursors, chain_headers, chain_tx_attempts, chain_txs, customers, delivery_attempts,
    idempotency_keys, ledger_postings, operations, payment_transitions, payments, sending_transitions, sendings,
    transfers,
};

use crate::observe::Moved;

/// Times a delivery is tried again after its first attempt failed: four attempts in all. A new delivery starts with this
/// many `retries_left`; the first attempt takes none of them.
pub const DELIVERY_RETRIES_MAX: i64 = 3;

/// One unit of writing. Boxed, so that the queue holds pointers.
#[derive(Debug)]
pub enum Unit {
    /// A new payment.
    Initiation(Box<Initiation>),
    /// A new customer.
    Customer(Box<CustomerCreation>),
    /// A transition of a payment that exists.
    Transition(Box<Transition>),
    /// A payout or a withdrawal, new or moved on.
    Sending(Box<SendingChange>),
    /// Facts that a payment, payout or withdrawal has taken in without changing: old ones, or such as change nothing.
    TransfersApplied(Box<TransfersApplied>),
    /// Blocks that were read whole.
    ChainBatch(Box<ChainBatch>),
    /// The outcome of one webhook attempt.
    Delivery(Box<DeliveryOutcome>),
    /// A signed transaction of the operator, before its broadcast.
    Submission(Box<Submission>),
    /// The same nonce signed again with higher fees, before its broadcast.
    Attempt(Box<chain_tx_attempts::Model>),
    /// What became of an operator's transaction and the operations it carried.
    ChainTxOutcome(Box<ChainTxOutcome>),
    /// Operations that are not to be signed.
    Refusal(Box<Refusal>),
    /// An operation whose number is another's.
    Renumbering(Box<Renumbering>),
}

/// A new payment. Gate: its idempotency key, if it has one, is new.
#[derive(Debug)]
pub struct Initiation {
    /// The row, at version 1.
    pub payment: payments::Model,
    /// Its first transition.
    pub transition: payment_transitions::Model,
    /// The caller's idempotency key with the answer, which is known before the commit.
    pub idempotency: Option<idempotency_keys::Model>,
    /// What its commit changes of the tally.
    pub(crate) moved: Option<Moved>,
}

/// A new customer. Gate: the request's idempotency key, if it has one, is new.
#[derive(Debug)]
pub struct CustomerCreation {
    /// The row, at version 1.
    pub customer: customers::Model,
    /// Who made it. Its `number` is ignored: the database gives it.
    pub audit: audit_log::Model,
    /// The caller's idempotency key with the answer.
    pub idempotency: Option<idempotency_keys::Model>,
}

/// A transition. Gate: the row is still at the version before it.
#[derive(Debug)]
pub struct Transition {
    /// The row after the transition; `payment.version - 1` is what must be there before.
    pub payment: payments::Model,
    /// What happened.
    pub transition: payment_transitions::Model,
    /// What is announced, in order of `sequence`.
    pub announcements: Vec<NewEvent>,
    /// Operations to queue (numbers are given out in the commit), queue again or cancel.
    pub operations: Vec<OperationChange>,
    /// What the ledger notes.
    pub postings: Vec<ledger_postings::Model>,
    /// What has to be there, if the transition has money sent. A gate.
    pub reserve: Option<Reserve>,
    /// Transfer rows that this transition took in.
    pub applied: Vec<AppliedTransfer>,
    /// The caller's idempotency key, when a person asked for the transition. A second gate.
    pub idempotency: Option<idempotency_keys::Model>,
    /// Who asked for it, where that is written down. Its `number` is ignored: the database gives it.
    pub audit: Option<audit_log::Model>,
    /// What its commit changes of the tally.
    pub(crate) moved: Option<Moved>,
}

/// A payout or a withdrawal. Gate: at version 1 none of its own, later the row is still at the version before.
#[derive(Debug)]
pub struct SendingChange {
    /// The row afterwards.
    pub sending: sendings::Model,
    /// What happened.
    pub transition: sending_transitions::Model,
    /// What is announced, in order of `sequence`.
    pub announcements: Vec<NewEvent>,
    /// Operations to queue, or that have succeeded.
    pub operations: Vec<OperationChange>,
    /// What the ledger notes.
    pub postings: Vec<ledger_postings::Model>,
    /// What has to be there, at version 1. A gate.
    pub reserve: Option<Reserve>,
    /// The caller's idempotency key with the answer. A gate.
    pub idempotency: Option<idempotency_keys::Model>,
    /// What an operator decided.
    pub audit: Option<audit_log::Model>,
}

/// Money of a PSP that is promised in a commit. Gates: the balance has it, and the day's ceiling is not passed. The balance
/// is changed by the gate itself, not by the posting about it.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Whose.
    pub psp_id: String,
    /// Chain name.
    pub chain: String,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Base units taken off the balance; 0 for what leaves a payment's own vault.
    pub amount: i64,
    /// Against the day's ceiling.
    pub day: DaySends,
}

/// What a sending adds to its day.
#[derive(Clone, Debug)]
pub struct DaySends {
    /// USDC or USDT.
    pub token: String,
    /// Days since the epoch, UTC.
    pub day: i64,
    /// Base units.
    pub amount: i64,
    /// The most that may be accepted on one day, base units.
    pub amount_max: i64,
}

impl Unit {
    /// Whether it begins something new: at the door it can be refused, and what goes on already comes first.
    pub(crate) const fn is_new(&self) -> bool {
        match self {
            Self::Initiation(_) | Self::Customer(_) => true,
            Self::Sending(change) => change.sending.version == 1,
            _ => false,
        }
    }

    /// The caller's idempotency key, if a caller asked for the unit with one.
    pub(crate) fn idempotency(&self) -> Option<&idempotency_keys::Model> {
        match self {
            Self::Initiation(initiation) => initiation.idempotency.as_ref(),
            Self::Customer(creation) => creation.idempotency.as_ref(),
            Self::Transition(transition) => transition.idempotency.as_ref(),
            Self::Sending(change) => change.idempotency.as_ref(),
            _ => None,
        }
    }

    /// What its commit changes of the tally.
    pub(crate) fn moved(&self) -> Option<&Moved> {
        match self {
            Self::Initiation(initiation) => initiation.moved.as_ref(),
            Self::Transition(transition) => transition.moved.as_ref(),
            _ => None,
        }
    }

    /// What it announces.
    pub(crate) fn announcements(&self) -> &[NewEvent] {
        match self {
            Self::Transition(transition) => &transition.announcements,
            Self::Sending(change) => &change.announcements,
            _ => &[],
        }
    }

    /// What it does to operations, and when.
    pub(crate) fn operations(&self) -> (&[OperationChange], i64) {
        match self {
            Self::Transition(transition) => (&transition.operations, transition.transition.at),
            Self::Sending(change) => (&change.operations, change.transition.at),
            Self::TransfersApplied(applied) => (&applied.operations, applied.at),
            _ => (&[], 0),
        }
    }

    /// What it posts to the ledger.
    pub(crate) fn postings(&self) -> &[ledger_postings::Model] {
        match self {
            Self::Transition(transition) => &transition.postings,
            Self::Sending(change) => &change.postings,
            _ => &[],
        }
    }

    /// What it has promised.
    pub(crate) fn reserve(&self) -> Option<&Reserve> {
        match self {
            Self::Transition(transition) => transition.reserve.as_ref(),
            Self::Sending(change) => change.reserve.as_ref(),
            _ => None,
        }
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

/// Facts that are known already. Without a gate: a later revision is never marked by an earlier one.
#[derive(Debug)]
pub struct TransfersApplied {
    /// The payment's version, which stays as it is; 0 for transfers that it has set aside.
    pub version: i64,
    /// Transfers that were taken in.
    pub transfers: Vec<AppliedTransfer>,
    /// Operations whose success was taken in.
    pub operations: Vec<OperationChange>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// An event of the feed before it has its position.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// `evt_` id.
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// What it is about.
    pub payment_id: String,
    /// Gapless per payment.
    pub sequence: i64,
    /// Such as `payment.confirmed`.
    pub name: String,
    /// The body as it will be signed and sent.
    pub payload: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// The `whd_` id of its delivery; `None` when the PSP's filter leaves it out.
    pub delivery_id: Option<String>,
}

/// What a transition does to an operation.
#[derive(Clone, Debug)]
pub enum OperationChange {
    /// Queue it. `number` in the model is ignored: a new row gets the chain's next number in the commit, a row that is
    /// there already (cancelled or failed before) keeps its own and becomes queued again with these amounts. A new row
    /// starts at `revision` 1, one that is there grows by one.
    Queue(Box<operations::Model>),
    /// It is not wanted any more. Only a queued or failed one becomes cancelled (`revision` grows); one on its way stays
    /// as it is.
    Cancel {
        /// `op_` id.
        id: String,
    },
    /// Its success at this revision was taken in. Only a mined one becomes succeeded, and not one that was taken back and
    /// mined again meanwhile.
    Succeeded {
        /// `op_` id.
        id: String,
        /// That of the row whose success it was.
        revision: i64,
    },
}

/// A transfer row at the revision that a payment took in.
#[derive(Clone, Debug)]
pub struct AppliedTransfer {
    /// Chain name.
    pub chain: String,
    /// 0x hex.
    pub tx_hash: String,
    /// Place of the log in its block.
    pub log_index: i64,
    /// The revision taken in.
    pub revision: i64,
}

/// Blocks read whole. Gate: the cursor is still where the reader found it.
#[derive(Debug)]
pub struct ChainBatch {
    /// Which chain.
    pub chain: Chain,
    /// Hash of the block the cursor stood at; `None` for a chain read for the first time.
    pub cursor_before: Option<String>,
    /// Where it stands afterwards.
    pub cursor: chain_cursors::Model,
    /// Blocks (by hash) that are no longer of the chain: their headers go, their transfers become orphaned.
    pub orphaned_blocks: Vec<String>,
    /// Headers read.
    pub headers: Vec<chain_headers::Model>,
    /// Headers below this number are final and forgotten.
    pub headers_keep_from: i64,
    /// Transfers found. A row that is there and differs (another block, or orphaned before) is brought up to date and
    /// its `revision` grows; one that is the same stays. `revision` and `applied_*` of the models are ignored.
    pub transfers: Vec<transfers::Model>,
}

/// How a webhook attempt ended. Gate: the attempt's number is new for its delivery.
#[derive(Debug)]
pub struct DeliveryOutcome {
    /// The attempt.
    pub attempt: delivery_attempts::Model,
    /// `delivered`, `failed` or `exhausted`.
    pub status: &'static str,
    /// Retries that remain after this attempt.
    pub retries_left: i64,
    /// When the next one is due, if any.
    pub next_attempt_at: Option<i64>,
}

/// A signed transaction. Gates: the nonce is unused, and each operation is still queued at the revision that was signed
/// (a payment may have changed its amounts in between).
#[derive(Debug)]
pub struct Submission {
    /// The transaction; its `id` is given in the commit.
    pub chain_tx: chain_txs::Model,
    /// Its signed bytes.
    pub attempt: chain_tx_attempts::Model,
    /// What it carries; these become submitted, their `chain_tx_id` is set and `attempts` grows.
    pub operations: Vec<SignedOperation>,
}

/// An operation as it was signed.
#[derive(Clone, Debug)]
pub struct SignedOperation {
    /// `op_` id.
    pub id: String,
    /// Revision of the row whose amounts were signed.
    pub revision: i64,
}

/// What became of an operator's transaction. Gate: the transaction is there.
#[derive(Debug)]
pub struct ChainTxOutcome {
    /// Row of the transaction.
    pub chain_tx_id: i64,
    /// `submitted` (again, after a reorganisation), `mined`, `final`, `reverted` or `cancelled`.
    pub status: &'static str,
    /// The attempt that was mined.
    pub tx_hash: Option<String>,
    /// Where.
    pub block_number: Option<i64>,
    /// Where.
    pub block_hash: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// What became of operations it carried.
    pub operations: Vec<OperationOutcome>,
}

/// Queued operations that are not to be signed. Without a gate: each fails for itself. One that is not queued any more, or
/// was queued anew since it was read, is left alone: what spoke against it may not hold now.
#[derive(Debug)]
pub struct Refusal {
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Which, and why.
    pub operations: Vec<RefusedOperation>,
}

/// An operation as it was refused.
#[derive(Clone, Debug)]
pub struct RefusedOperation {
    /// `op_` id.
    pub id: String,
    /// Revision of the row that was looked at.
    pub revision: i64,
    /// Why it fails.
    pub failure: String,
}

/// An operation whose number another one has used on-chain: it gets its chain's next one that is not below `lowest`, and is
/// queued again; the counter goes on behind it. Gate: it is on its way with that number, at that revision.
#[derive(Clone, Debug)]
pub struct Renumbering {
    /// `op_` id.
    pub id: String,
    /// Its chain.
    pub chain: Chain,
    /// The number that is another's.
    pub number: i64,
    /// Revision of the row that had it.
    pub revision: i64,
    /// No number below this one is given out on the chain any more.
    pub lowest: i64,
    /// Why, kept with the row.
    pub failure: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// What became of one operation. Applied unless the operation is cancelled, and `mined` even then; `revision` grows by one.
/// A succeeded one is taken back by it: its transaction was orphaned, or mined again elsewhere.
#[derive(Debug)]
pub struct OperationOutcome {
    /// `op_` id.
    pub id: String,
    /// `queued` (again), `submitted`, `mined` or `failed`.
    pub status: &'static str,
    /// The transaction that did it.
    pub tx_hash: Option<String>,
    /// Where it was mined.
    pub block_number: Option<i64>,
    /// What it moved, by the chain's own word; as the row has it if absent.
    pub carried: Option<Carried>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Not tried before then, milliseconds since the epoch.
    pub not_before: i64,
}

/// What an operation moved, in base units: the shares of a settlement, which are the whole of it, or the amount of a
/// sending and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// All of it.
    pub amount: i64,
    /// The PSP's share.
    pub psp_amount: i64,
    /// The treasury's share.
    pub treasury_fee: i64,
}

/// What a commit gave back.
#[derive(Debug, Default)]
pub struct Receipt {
    /// Chain batch: each transfer row that changed, as it is now (orphaned ones first).
    pub transfers: Vec<transfers::Model>,
    /// Submission: the row number given to the transaction.
    pub chain_tx_id: Option<i64>,
    /// Chain transaction outcome, refusal or renumbering: each operation that it changed, as it is now.
    pub operations: Vec<operations::Model>,
}
