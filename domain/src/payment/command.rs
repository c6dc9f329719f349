//! What can be asked of a payment, and what can be told it. Facts never fail; people's wishes can (`Rejection`).

use serde::{Deserialize, Serialize};

use super::money_out::{Funds, Requester};
use super::transfer::{ObservedTransfer, TransferKey, Verdict};
use crate::chain::{Address, Finality, Hash32};
use crate::ids::{OperationId, RefundId};
use crate::ledger::Asset;
use crate::money::Amount;
use crate::time::Timestamp;

/// One outage of a chain, unique per chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutageId(pub u64);

/// A command to a payment.
///
/// The facts (`ObserveTransfer` to `OrphanSettlement` save those marked below) may come repeatedly, late and in any
/// order; what is old or known changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The chain watcher's row about a transfer: seen, re-mined or orphaned.
    ObserveTransfer(ObservedTransfer),
    /// List money that was set aside for want of room. (A person's, the operator's.)
    TakeIn {
        /// The watcher's rows about it, each transfer once.
        observed: Vec<ObservedTransfer>,
    },
    /// The block that held `revision` has reached a finality.
    FinaliseTransfer {
        /// Which transfer.
        key: TransferKey,
        /// Which state of it; ignored unless it is the current one.
        revision: u32,
        /// What was reached; ignored if it is less than the tier asks for.
        reached: Finality,
    },
    /// A screening result, or (with `verdict.by_operator`) a person's decision on a review.
    ScreenTransfer {
        /// Which transfer.
        key: TransferKey,
        /// The revision that was screened (as `Effect::Screen` gave it, or the current one for a person).
        revision: u32,
        /// What it says.
        verdict: Verdict,
    },
    /// The watcher has read a block of the payment's chain with this timestamp. Only ever of the payment's own chain.
    PassDeadline {
        /// The block's timestamp.
        chain_time: Timestamp,
    },
    /// The payment's chain stood still.
    MoveDeadline {
        /// Which outage; applied once. The same outage with a later `to` replaces the earlier one.
        outage: OutageId,
        /// From the last block before it.
        from: Timestamp,
        /// To the first block after it.
        to: Timestamp,
    },
    /// The PSP does not want it any more. (A person's.)
    Cancel,
    /// The PSP takes what is there. (A person's.)
    Accept {
        /// What the PSP believes was received; refused if it has moved.
        expected_received: Option<Amount>,
    },
    /// Send money back. (A person's.)
    RequestRefund {
        /// The new refund's id.
        refund_id: RefundId,
        /// How much; all that can be refunded if absent.
        amount: Option<Amount>,
        /// To whom; the sender if absent and allowed.
        to: Option<Address>,
        /// Out of which money; `Blocked` is the operator's alone.
        funds: Funds,
        /// In which token on which chain: of misdirected money, and of no other.
        asset: Option<Asset>,
        /// Who asks.
        by: Requester,
    },
    /// A screening result about the address of a refund, or (with `verdict.by_operator`) a person's decision on a review.
    ScreenRefund {
        /// Which.
        refund_id: RefundId,
        /// What it says.
        verdict: Verdict,
    },
    /// A refund's sending is final.
    CompleteRefund {
        /// Which.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
    },
    /// A refund will definitely not be sent, also one that was final before the chain took it back.
    FailRefund {
        /// Which.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Why, for people.
        reason: String,
    },
    /// Try a failed settlement again. (A person's, unless `by` is the schedule.)
    RetrySettlement {
        /// Who asks.
        by: Requester,
    },
    /// The settlement is mined and final by the tier.
    CompleteSettlement {
        /// Which.
        operation: OperationId,
        /// Grows with every outcome that the settler's row records (completed, failed, orphaned, completed again); a
        /// fact that is not newer than the one applied changes nothing. Begins at 1.
        revision: u32,
        /// What it moved, by the chain's own word: an older transaction may have carried what was settled before a
        /// reorganisation.
        amount: Amount,
        /// The transaction.
        tx_hash: Hash32,
        /// The time of its block.
        block_time: Timestamp,
    },
    /// The settlement reverted for a lasting reason.
    FailSettlement {
        /// Which.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Why, for operators.
        reason: String,
    },
    /// A settlement that was final is in the chain no more; the settler broadcasts it again.
    OrphanSettlement {
        /// Which.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
    },
}
