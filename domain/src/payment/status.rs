//! Status, failure reason, labels, and history of a payment.

use serde::{Deserialize, Serialize};

use crate::named::{named, named_set};
use crate::time::Timestamp;

named! {
    /// Status of a payment. Labels add details.
    Status, "pending, confirmed, settled, mismatched, failed" {
        /// Waiting for funds, or for finality and screening of received funds.
        Pending = "pending",
        /// The funds are received and the settlement is in progress.
        Confirmed = "confirmed",
        /// The PSP's share is in its vault.
        Settled = "settled",
        /// The funds do not match the terms; the PSP decides.
        Mismatched = "mismatched",
        /// The payment failed; see `failure_reason`.
        Failed = "failed",
    }
}

named! {
    /// Reason why a payment failed.
    FailureReason, "expired, kyt_blocked, settlement_failed, cancelled" {
        /// The deadline passed without funds.
        Expired = "expired",
        /// Screening blocked all the funds.
        KytBlocked = "kyt_blocked",
        /// The settlement failed and the PSP refunded the payment.
        SettlementFailed = "settlement_failed",
        /// The PSP cancelled it.
        Cancelled = "cancelled",
    }
}

named! {
    /// Code of a failure in the interface: the reason why a payment failed, or why a transfer to a customer failed while
    /// its payment is open.
    PublicFailure, "expired, kyt_blocked, settlement_failed, cancelled, mismatched" {
        /// The deadline passed without funds.
        Expired = "expired",
        /// Screening blocked all the funds.
        KytBlocked = "kyt_blocked",
        /// The settlement failed for a permanent reason.
        SettlementFailed = "settlement_failed",
        /// The PSP cancelled it.
        Cancelled = "cancelled",
        /// Only of a transfer: the funds do not match its terms, and the PSP decides.
        Mismatched = "mismatched",
    }
}

impl PublicFailure {
    /// Returns the failure in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Expired => "It expired before it was paid.",
            Self::KytBlocked => "Screening blocked the received money.",
            Self::SettlementFailed => "The settlement failed for a permanent reason.",
            Self::Cancelled => "It was cancelled.",
            Self::Mismatched => "The received money does not match the amount or the deadline.",
        }
    }
}

impl From<FailureReason> for PublicFailure {
    fn from(reason: FailureReason) -> Self {
        match reason {
            FailureReason::Expired => Self::Expired,
            FailureReason::KytBlocked => Self::KytBlocked,
            FailureReason::SettlementFailed => Self::SettlementFailed,
            FailureReason::Cancelled => Self::Cancelled,
        }
    }
}

named! {
    /// Reason of a history entry.
    Reason, "a reason of a history entry" {
        /// The payment was created.
        Initiated = "initiated",
        /// The amount due was received.
        Paid = "paid",
        /// Less than the amount due was received.
        Underpaid = "underpaid",
        /// More than the amount due was received.
        Overpaid = "overpaid",
        /// Funds arrived after the deadline.
        Late = "late",
        /// More funds arrived after the payment had left pending.
        MoreReceived = "more_received",
        /// The PSP accepted the amount received.
        Accepted = "accepted",
        /// The settlement is final.
        Settled = "settled",
        /// The settlement failed for a permanent reason.
        SettlementFailed = "settlement_failed",
        /// The deadline passed.
        Expired = "expired",
        /// The deadline passed while funds of the wrong token or on the wrong chain were held.
        WrongMoney = "wrong_money",
        /// The PSP cancelled.
        Cancelled = "cancelled",
        /// Screening blocked all the funds.
        KytBlocked = "kyt_blocked",
        /// Funds or a settlement were orphaned.
        Reorged = "reorged",
        /// The deadline was extended by the length of an outage.
        DeadlineMoved = "deadline_moved",
        /// The payer chose the chain.
        ChainChosen = "chain_chosen",
        /// The entry was written by a version with reasons that this version does not know.
        #[serde(other)]
        Unknown = "unknown",
    }
}

/// One entry of `status_history`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// New status. It can equal the previous status, for example when the deadline moves or more funds arrive.
    pub status: Status,
    /// Time of the decision.
    pub at: Timestamp,
    /// Reason.
    pub reason: Reason,
}

named! {
    /// One label of a payment.
    Label, "a label in upper case" {
        /// Less than the amount due was received.
        Underpaid = "UNDERPAID",
        /// More than the amount due was received.
        Overpaid = "OVERPAID",
        /// Funds arrived after the deadline.
        Late = "LATE",
        /// More than one transfer counts.
        Multiple = "MULTIPLE",
        /// Funds arrived after confirmation.
        Excess = "EXCESS",
        /// Funds or a settlement were orphaned at least once.
        Reorged = "REORGED",
        /// Funds in another token arrived, even if they were refunded later.
        WrongToken = "WRONG_TOKEN",
        /// Funds on another chain arrived, even if they were refunded later.
        WrongChain = "WRONG_CHAIN",
        /// A transfer waits for a decision of the operator.
        InReview = "IN_REVIEW",
        /// Screening blocked received funds, even if they were refunded later.
        FundsBlocked = "FUNDS_BLOCKED",
        /// The settlement failed for a permanent reason and has not succeeded since.
        SettlementFailed = "SETTLEMENT_FAILED",
        /// A refund above the limit waits for the operator's approval.
        RefundApproval = "REFUND_APPROVAL",
        /// The payer signed an authorization, which is in progress or collected.
        Authorized = "AUTHORIZED",
    }
}

named_set! {
    /// A set of labels in two bytes, serialised as a list of names. Unknown names are skipped.
    Labels(u16) of Label, skips_unknown: true
}
