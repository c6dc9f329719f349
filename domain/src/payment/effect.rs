//! Effects to run after the commit, in the imperative. A lost effect costs time, never money: `resume` returns it
//! again.

use serde::Serialize;

use super::transfer::TransferKey;
use crate::chain::{Address, Chain, Finality};
use crate::ids::{OperationId, RefundId};
use crate::money::Amount;
use crate::time::Timestamp;

/// An effect to run after the commit. Every effect is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Send `FinaliseTransfer` when the block has reached this finality. Replaces an earlier wait for the same key.
    AwaitFinality {
        /// Key of the transfer, which contains the chain.
        key: TransferKey,
        /// Revision of the transfer.
        revision: u32,
        /// Block number.
        block_number: u64,
        /// Required finality.
        finality: Finality,
    },
    /// Screen a transfer and send `ScreenTransfer`.
    Screen {
        /// Key of the transfer (chain, transaction, and log index). The token is the payment's.
        key: TransferKey,
        /// Revision to return in `ScreenTransfer`.
        revision: u32,
        /// Sender.
        from: Address,
        /// Amount.
        amount: Amount,
    },
    /// Screen the address of a refund and send `ScreenRefund`.
    ScreenRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// The address.
        to: Address,
        /// Amount.
        amount: Amount,
        /// Chain.
        chain: Chain,
    },
    /// The address of a refund is in review: screen it again at intervals, and raise an alarm if it is still in review
    /// at `alarm_at`.
    AwaitRefundReview {
        /// Id of the refund.
        refund_id: RefundId,
        /// The address.
        to: Address,
        /// Amount.
        amount: Amount,
        /// Chain.
        chain: Chain,
        /// Time of the alarm.
        alarm_at: Timestamp,
    },
    /// A transfer is in review: screen it again at intervals, and raise an alarm if it is still in review at
    /// `alarm_at`.
    AwaitReview {
        /// Key of the transfer.
        key: TransferKey,
        /// Revision to return in `ScreenTransfer`.
        revision: u32,
        /// Time of the alarm.
        alarm_at: Timestamp,
    },
    /// Send `PassDeadline` when the watcher has read a block of this time or later. Replaces an earlier wait.
    AwaitDeadline {
        /// The payment's chain.
        chain: Chain,
        /// Time to wait for.
        at: Timestamp,
    },
    /// Notify the settler that the row of the settlement is queued.
    Settle {
        /// Id of the operation.
        operation: OperationId,
        /// Chain of the operation.
        chain: Chain,
    },
    /// Notify the settler that the row of the settlement must be held back.
    CancelSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// Chain of the operation.
        chain: Chain,
    },
    /// Send `RetrySettlement` at this time, requested by the schedule.
    AwaitRetry {
        /// Id of the operation.
        operation: OperationId,
        /// Time of the event.
        at: Timestamp,
    },
    /// Notify the settler that the row of an outbound transfer is queued.
    Send {
        /// Id of the operation.
        operation: OperationId,
        /// The refund.
        refund_id: RefundId,
        /// Chain of the operation.
        chain: Chain,
    },
    /// Notify the webhook sender that rows are queued.
    DeliverWebhooks,
    /// The payment no longer needs an actor; the actor may stop when its mailbox is drained.
    Passivate,
    /// Notify the operator.
    Alarm(Alarm),
}

/// An alarm for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "alarm")]
pub enum Alarm {
    /// Counted funds were orphaned after confirmation.
    ReceivedMoneyOrphaned {
        /// Key of the transfer.
        key: TransferKey,
    },
    /// A final settlement was orphaned.
    SettlementOrphaned {
        /// Id of the operation.
        operation: OperationId,
    },
    /// A settlement failed for a permanent reason.
    SettlementFailed {
        /// Id of the operation.
        operation: OperationId,
        /// Number of failures so far.
        failures: u32,
    },
    /// Screening blocked funds.
    FundsBlocked {
        /// Key of the transfer.
        key: TransferKey,
    },
    /// More was refunded than is left of the amount received (a reorganisation after a refund).
    Overdrawn {
        /// Missing amount.
        amount: Amount,
    },
}
