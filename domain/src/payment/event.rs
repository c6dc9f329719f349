//! Events of a payment, in the past tense, and effects, in the imperative. The events of one command are one commit and one
//! version. Effects run after the commit: a lost effect costs time, never money, because `resume` returns it again.

use serde::{Deserialize, Serialize};

use super::authorization::{Authorization, AuthorizationEnd};
use super::command::OutageId;
use super::money_out::{Refund, Requester};
use super::payer_request::PayerRequest;
use super::status::{FailureReason, Labels, Reason};
use super::terms::Terms;
use super::transfer::{Transfer, TransferKey, Verdict};
use crate::chain::{Address, Chain, Finality, Hash32};
use crate::ids::{OperationId, RefundId, RefundRequestId};
use crate::money::Amount;
use crate::named::named;
use crate::time::Timestamp;

/// An event of a payment. Serialised as `{"type": "confirmed", ...}`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case", tag = "type")]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// The payment was created.
    Initiated {
        /// Terms of the payment.
        terms: Box<Terms>,
        /// Payment deadline.
        expires_at: Timestamp,
    },
    /// The payer chose the chain, on the page or by a transfer.
    ChainChosen {
        /// Chain.
        chain: Chain,
        /// Time of the choice.
        at: Timestamp,
    },
    /// A transfer was seen for the first time, mined again, or orphaned.
    TransferRecorded {
        /// Complete new entry; replaces the entry with the same key.
        transfer: Box<Transfer>,
        /// Time until which the payment waits for an orphaned in-time transfer, if this event starts such a wait.
        remine_until: Option<Timestamp>,
    },
    /// A transfer reached the required finality.
    TransferFinalised {
        /// Key of the transfer.
        key: TransferKey,
    },
    /// A transfer was screened.
    TransferScreened {
        /// Key of the transfer.
        key: TransferKey,
        /// Verdict.
        verdict: Box<Verdict>,
    },
    /// A transfer was added to the amount received.
    TransferCounted {
        /// Key of the transfer.
        key: TransferKey,
        /// True if the settled amount was already frozen.
        excess: bool,
        /// Time of the event.
        at: Timestamp,
    },
    /// Counted funds were orphaned.
    Reorged {
        /// Key of the transfer.
        key: TransferKey,
        /// True if the payment returns to pending.
        reopened: bool,
        /// Time of the event.
        at: Timestamp,
    },
    /// The deadline has passed, by chain time.
    DeadlinePassed {
        /// Timestamp of the block that showed it.
        chain_time: Timestamp,
    },
    /// The deadline was extended by the length of an outage.
    DeadlineMoved {
        /// Id of the outage.
        outage: OutageId,
        /// Start.
        from: Timestamp,
        /// End.
        to: Timestamp,
        /// New deadline.
        expires_at: Timestamp,
        /// Time of the decision.
        at: Timestamp,
    },
    /// The payment is confirmed, and its settled amount is frozen.
    Confirmed {
        /// Amount to settle.
        amount: Amount,
        /// The PSP's share.
        psp_amount: Amount,
        /// The treasury's share.
        treasury_fee: Amount,
        /// New values of the labels that are not derived.
        labels: Labels,
        /// Reason.
        reason: Reason,
        /// Time of the event.
        at: Timestamp,
    },
    /// The payment is, or remains, mismatched.
    Mismatched {
        /// New values of the labels that are not derived.
        labels: Labels,
        /// Reason.
        reason: Reason,
        /// Time of the event.
        at: Timestamp,
    },
    /// The payment failed: expired, cancelled, blocked, or refunded after a failed settlement.
    Failed {
        /// Reason.
        reason: FailureReason,
        /// Time of the event.
        at: Timestamp,
    },
    /// The transaction of the settlement is final.
    SettlementCompleted {
        /// Revision of the settler's row.
        revision: u32,
        /// Amount that was moved, if it differs from the amount frozen last.
        amount: Option<Amount>,
        /// The transaction.
        tx_hash: Hash32,
        /// Time of the block.
        block_time: Timestamp,
    },
    /// The payment is settled: it was confirmed and its settlement is complete.
    Settled {
        /// Time of the event.
        at: Timestamp,
    },
    /// The settlement failed for a permanent reason.
    SettlementFailed {
        /// Revision of the settler's row.
        revision: u32,
        /// Reason, for operators.
        reason: String,
        /// Time of the next automatic retry.
        retry_at: Timestamp,
        /// True if the PSP is notified: the first time, and when a person requested the attempt.
        announced: bool,
        /// Time of the event.
        at: Timestamp,
    },
    /// The settlement is queued for a retry.
    SettlementRetried {
        /// Requester.
        by: Requester,
    },
    /// The settlement is no longer in the chain and is broadcast again.
    SettlementOrphaned {
        /// Revision of the settler's row.
        revision: u32,
        /// True if the settlement was known to be final. Otherwise only the revision is recorded.
        was_settled: bool,
        /// Time of the event.
        at: Timestamp,
    },
    /// A refund was accepted and its amount reserved.
    RefundRequested {
        /// The refund.
        refund: Box<Refund>,
        /// True if it takes everything that was to be settled, so that the settlement is withdrawn.
        withdraws_settlement: bool,
    },
    /// A payer asked for a refund.
    RefundAsked {
        /// The request.
        request: Box<PayerRequest>,
    },
    /// The PSP declined the request of a payer.
    RefundRequestDeclined {
        /// Id of the request.
        request_id: RefundRequestId,
        /// Time of the decision.
        at: Timestamp,
    },
    /// The address of a refund was screened.
    RefundScreened {
        /// Id of the refund.
        refund_id: RefundId,
        /// Verdict.
        verdict: Box<Verdict>,
    },
    /// The operator approved a refund above a limit.
    RefundApproved {
        /// Id of the refund.
        refund_id: RefundId,
        /// Time of the decision.
        at: Timestamp,
    },
    /// An authorization was accepted.
    AuthorizationAccepted {
        /// The authorization.
        authorization: Box<Authorization>,
    },
    /// The payer of the authorization was screened.
    AuthorizationScreened {
        /// Verdict.
        verdict: Box<Verdict>,
    },
    /// The settler may collect the authorization.
    AuthorizationQueued,
    /// The authorization is collected. A receipt has settled the payment.
    AuthorizationCollected {
        /// Revision of the settler's row.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
        /// The payment of the payer, if the contract received it. Otherwise the watcher finds the transfer.
        transfer: Option<Box<Transfer>>,
    },
    /// The block that collected the authorization is no longer in the chain.
    AuthorizationOrphaned {
        /// Revision of the settler's row.
        revision: u32,
    },
    /// The authorization ended without being collected.
    AuthorizationEnded {
        /// How it ended.
        end: AuthorizationEnd,
        /// Revision of the settler's row, or 0.
        revision: u32,
        /// Details, for people.
        detail: Option<String>,
        /// Time of the event.
        at: Timestamp,
    },
    /// The outbound transfer of a refund is final.
    RefundSent {
        /// Id of the refund.
        refund_id: RefundId,
        /// Revision of the settler's row.
        #[serde(default)]
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
        /// Time of recording.
        at: Timestamp,
    },
    /// A refund will not be sent, or was permanently orphaned. Its amount is available again.
    RefundFailed {
        /// Id of the refund.
        refund_id: RefundId,
        /// Revision of the settler's row, if the settler reported the failure.
        #[serde(default)]
        revision: u32,
        /// Reason.
        reason: String,
        /// Time of the retry of the settlement that the refund had withdrawn.
        retry_at: Option<Timestamp>,
        /// Time of recording.
        at: Timestamp,
    },
}

impl Event {
    /// Name as stored, for indexes and logs.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// An effect to run after the commit. Every effect is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Send `FinaliseTransfers` when the block has reached this finality. Replaces an earlier wait for the same key.
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
        /// Key of the transfer. The token is the payment's.
        key: TransferKey,
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
    /// Screen the payer of the authorization and send `ScreenAuthorization`. With `alarm_at`, it is in review: screen it
    /// again after an interval, and raise an alarm if it is still in review at that time.
    ScreenAuthorization {
        /// Operation that collects it.
        operation: OperationId,
        /// Payer.
        from: Address,
        /// Amount.
        amount: Amount,
        /// Time of the alarm.
        alarm_at: Option<Timestamp>,
    },
    /// Notify the settler that the row of the authorization is queued.
    Collect {
        /// Id of the operation.
        operation: OperationId,
        /// Chain of the operation.
        chain: Chain,
    },
    /// A transfer is in review: screen it again at intervals, and raise an alarm if it is still in review at
    /// `alarm_at`.
    AwaitReview {
        /// Key of the transfer.
        key: TransferKey,
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
    /// After a restart: notify the webhook sender that rows may be queued. The commit of an announcement notifies it itself.
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

named! {
    /// Kind of an alarm that no label of the payment shows. It is stored until its cause ends or an operator acknowledges it.
    AlarmKind, "received_money_orphaned, settlement_orphaned, overdrawn" {
        /// Counted funds were orphaned after confirmation.
        ReceivedMoneyOrphaned = "received_money_orphaned",
        /// A final settlement was orphaned.
        SettlementOrphaned = "settlement_orphaned",
        /// More was refunded than is left of the amount received.
        Overdrawn = "overdrawn",
    }
}

impl Alarm {
    /// Returns the kind, unless a label of the payment shows the cause.
    pub const fn stored_kind(&self) -> Option<AlarmKind> {
        match self {
            Self::ReceivedMoneyOrphaned { .. } => Some(AlarmKind::ReceivedMoneyOrphaned),
            Self::SettlementOrphaned { .. } => Some(AlarmKind::SettlementOrphaned),
            Self::Overdrawn { .. } => Some(AlarmKind::Overdrawn),
            Self::SettlementFailed { .. } | Self::FundsBlocked { .. } => None,
        }
    }
}
