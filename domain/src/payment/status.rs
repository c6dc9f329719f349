//! A payment's status, why it failed, and its history.

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::time::Timestamp;

named! {
    /// Where a payment stands; exactly one at a time. Finer facts are labels.
    Status, "pending, confirmed, settled, mismatched, failed" {
        /// Waits for money, or for what arrived to become final and screened.
        Pending = "pending",
        /// The money is there and its settlement is under way.
        Confirmed = "confirmed",
        /// The PSP's share is in its vault.
        Settled = "settled",
        /// Money is there that does not fit; the PSP decides.
        Mismatched = "mismatched",
        /// Nothing will come of it; `failure_reason` says why.
        Failed = "failed",
    }
}

named! {
    /// Why a payment failed.
    FailureReason, "expired, kyt_blocked, settlement_failed, cancelled" {
        /// The deadline passed without money.
        Expired = "expired",
        /// All the money that came was blocked by screening.
        KytBlocked = "kyt_blocked",
        /// It could not be settled and the PSP refunded it.
        SettlementFailed = "settlement_failed",
        /// The PSP cancelled it.
        Cancelled = "cancelled",
    }
}

named! {
    /// Why an entry of the history was made.
    Reason, "a reason of a history entry" {
        /// The payment was made.
        Initiated = "initiated",
        /// What was due arrived.
        Paid = "paid",
        /// Less than what was due arrived.
        Underpaid = "underpaid",
        /// More than what was due arrived.
        Overpaid = "overpaid",
        /// Money arrived too late.
        Late = "late",
        /// More money arrived for a payment that had left pending.
        MoreReceived = "more_received",
        /// The PSP accepted what was there.
        Accepted = "accepted",
        /// The settlement is final.
        Settled = "settled",
        /// The settlement failed for a lasting reason.
        SettlementFailed = "settlement_failed",
        /// The deadline passed.
        Expired = "expired",
        /// The deadline passed with money of the wrong token or on the wrong chain held.
        WrongMoney = "wrong_money",
        /// The PSP cancelled.
        Cancelled = "cancelled",
        /// Screening blocked all the money.
        KytBlocked = "kyt_blocked",
        /// The chain took money back.
        Reorged = "reorged",
        /// The deadline moved on by the length of an outage.
        DeadlineMoved = "deadline_moved",
        /// A version that this one does not know wrote the entry.
        #[serde(other)]
        Unknown = "unknown",
    }
}

/// One line of `status_history`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The status from then on (it may equal the one before: a moved deadline, more money).
    pub status: Status,
    /// When it was decided.
    pub at: Timestamp,
    /// Why.
    pub reason: Reason,
}
