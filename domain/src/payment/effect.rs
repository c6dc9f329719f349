//! What is to be done after the commit, in the imperative. Losing one costs time, never money: `resume` owes it again.

use serde::Serialize;

use super::transfer::TransferKey;
use crate::chain::{Address, Chain, Finality};
use crate::ids::{OperationId, RefundId};
use crate::money::Amount;
use crate::time::Timestamp;

/// Something to do after the commit. Every effect is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Send `FinaliseTransfer` once the block has reached this finality; replaces an earlier wait for the same key.
    AwaitFinality {
        /// Which transfer (its chain is in the key).
        key: TransferKey,
        /// Which state of it.
        revision: u32,
        /// The number of the block.
        block_number: u64,
        /// What has to be reached.
        finality: Finality,
    },
    /// Have a transfer screened and send `ScreenTransfer`.
    Screen {
        /// Which transfer (chain, transaction and log index are in the key; the token is the payment's).
        key: TransferKey,
        /// To be given back in `ScreenTransfer`.
        revision: u32,
        /// The sender.
        from: Address,
        /// How much.
        amount: Amount,
    },
    /// Have the address of a refund screened and send `ScreenRefund`.
    ScreenRefund {
        /// Which refund.
        refund_id: RefundId,
        /// The address.
        to: Address,
        /// How much.
        amount: Amount,
        /// On which chain.
        chain: Chain,
    },
    /// The address of a refund is in review: screen it again at intervals, and raise an alarm if it still is by then.
    AwaitRefundReview {
        /// Which refund.
        refund_id: RefundId,
        /// The address.
        to: Address,
        /// How much.
        amount: Amount,
        /// On which chain.
        chain: Chain,
        /// When an alarm is due.
        alarm_at: Timestamp,
    },
    /// A transfer is in review: screen it again at intervals, and raise an alarm if it still is by then.
    AwaitReview {
        /// Which transfer.
        key: TransferKey,
        /// To be given back in `ScreenTransfer`.
        revision: u32,
        /// When an alarm is due.
        alarm_at: Timestamp,
    },
    /// Send `PassDeadline` once the watcher has read a block of this time or later; replaces an earlier wait.
    AwaitDeadline {
        /// The payment's chain.
        chain: Chain,
        /// The moment.
        at: Timestamp,
    },
    /// Tell the settler that the settlement's row waits.
    Settle {
        /// Which.
        operation: OperationId,
        /// Whose.
        chain: Chain,
    },
    /// Tell the settler that the settlement's row is to be held back.
    CancelSettlement {
        /// Which.
        operation: OperationId,
        /// Whose.
        chain: Chain,
    },
    /// Send `RetrySettlement` by the schedule at this moment.
    AwaitRetry {
        /// Which.
        operation: OperationId,
        /// When.
        at: Timestamp,
    },
    /// Tell the settler that a sending's row waits.
    Send {
        /// Which.
        operation: OperationId,
        /// For which refund.
        refund_id: RefundId,
        /// Whose.
        chain: Chain,
    },
    /// Tell the webhook sender that rows wait.
    DeliverWebhooks,
    /// The actor is needed no more; it may leave once it is drained.
    Passivate,
    /// Tell the operator.
    Alarm(Alarm),
}

/// What an operator must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "alarm")]
pub enum Alarm {
    /// Money that counted was taken back after confirmation.
    ReceivedMoneyOrphaned {
        /// Which transfer.
        key: TransferKey,
    },
    /// A settlement that was final was taken back.
    SettlementOrphaned {
        /// Which.
        operation: OperationId,
    },
    /// A settlement failed for a lasting reason.
    SettlementFailed {
        /// Which.
        operation: OperationId,
        /// How often so far.
        failures: u32,
    },
    /// Money was blocked by screening.
    FundsBlocked {
        /// Which transfer.
        key: TransferKey,
    },
    /// More was sent back than is left of what was received (a reorganisation after a refund).
    Overdrawn {
        /// By how much.
        amount: Amount,
    },
}
