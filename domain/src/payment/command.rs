//! Commands to a payment: facts and requests. Facts never fail; requests of people can be rejected (`Rejection`).

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
/// The facts (`ObserveTransfer` to `OrphanSettlement`, except those marked as requests) may arrive repeatedly, late,
/// and in any order. An outdated or known fact changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The chain watcher's row about a transfer: seen, mined again, or orphaned.
    ObserveTransfer(ObservedTransfer),
    /// List transfers that were set aside because the list was full. (Request of the operator.)
    TakeIn {
        /// The watcher's rows about these transfers, each transfer once.
        observed: Vec<ObservedTransfer>,
    },
    /// The block that held `revision` has reached a finality.
    FinaliseTransfer {
        /// Key of the transfer.
        key: TransferKey,
        /// Revision of the transfer; the command is ignored unless it is the current revision.
        revision: u32,
        /// Finality that was reached; the command is ignored if it is lower than the required finality.
        reached: Finality,
    },
    /// A screening result, or (with `verdict.by_operator`) the decision of a person on a review.
    ScreenTransfer {
        /// Key of the transfer.
        key: TransferKey,
        /// Revision that was screened (from `Effect::Screen`), or the current revision for a decision of a person.
        revision: u32,
        /// Verdict.
        verdict: Verdict,
    },
    /// The watcher has read a block of the payment's chain with this timestamp. Blocks of other chains are never
    /// reported.
    PassDeadline {
        /// Timestamp of the block.
        chain_time: Timestamp,
    },
    /// The payment's chain had an outage.
    MoveDeadline {
        /// Id of the outage. An outage is applied once; the same outage with a later `to` replaces the earlier one.
        outage: OutageId,
        /// Time of the last block before the outage.
        from: Timestamp,
        /// Time of the first block after the outage.
        to: Timestamp,
    },
    /// Cancel the payment. (Request of the PSP.)
    Cancel,
    /// Accept the funds that were received. (Request of the PSP.)
    Accept {
        /// Amount that the PSP expects to have been received; the command is rejected if the amount differs.
        expected_received: Option<Amount>,
    },
    /// Refund the payment. (Request of a person.)
    RequestRefund {
        /// Id for the new refund.
        refund_id: RefundId,
        /// Amount; if absent, everything that can be refunded.
        amount: Option<Amount>,
        /// Recipient address; if absent, the sender, if the PSP allows it.
        to: Option<Address>,
        /// Funds to refund. Only the operator may use `Blocked`.
        funds: Funds,
        /// Token and chain. Set only for misdirected funds.
        asset: Option<Asset>,
        /// Requester.
        by: Requester,
    },
    /// A screening result for the address of a refund, or (with `verdict.by_operator`) the decision of a person on a
    /// review.
    ScreenRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// Verdict.
        verdict: Verdict,
    },
    /// The outbound transfer of a refund is final.
    CompleteRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
    },
    /// A refund will definitely not be sent. Includes refunds that were final before they were orphaned.
    FailRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Reason, as text.
        reason: String,
    },
    /// Retry a failed settlement. (Request of a person, unless `by` is the schedule.)
    RetrySettlement {
        /// Requester.
        by: Requester,
    },
    /// The settlement is mined and has the required finality.
    CompleteSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// Incremented with every outcome that the settler's row records (completed, failed, orphaned, completed
        /// again). A fact that is not newer than the last applied revision changes nothing. Starts at 1.
        revision: u32,
        /// Amount that the chain reports as settled. It can differ from the amount queued last: an older transaction
        /// may have carried an amount from before a reorganisation.
        amount: Amount,
        /// The transaction.
        tx_hash: Hash32,
        /// Time of the block.
        block_time: Timestamp,
    },
    /// The settlement reverted for a permanent reason.
    FailSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Reason, for operators.
        reason: String,
    },
    /// A final settlement is no longer in the chain; the settler broadcasts it again.
    OrphanSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
    },
}
