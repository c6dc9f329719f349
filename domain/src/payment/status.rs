//! Status, failure reason, labels, and history of a payment.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;
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
    }
}

/// A set of labels in two bytes, serialised as a list of names. Unknown names are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Labels(u16);

impl Labels {
    /// The empty set.
    pub const NONE: Self = Self(0);

    const fn bit(label: Label) -> u16 {
        1 << label as u16
    }

    /// Returns true if `label` is in the set.
    pub const fn contains(self, label: Label) -> bool {
        self.0 & Self::bit(label) != 0
    }

    /// Returns the set with `label`.
    #[must_use]
    pub const fn with(self, label: Label) -> Self {
        Self(self.0 | Self::bit(label))
    }

    /// Returns the set without `label`.
    #[must_use]
    pub const fn without(self, label: Label) -> Self {
        Self(self.0 & !Self::bit(label))
    }

    /// Returns the set with or without `label`.
    #[must_use]
    pub const fn set(self, label: Label, present: bool) -> Self {
        if present { self.with(label) } else { self.without(label) }
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the labels in the order of the interface.
    pub fn iter(self) -> impl Iterator<Item = Label> {
        Label::ALL.iter().copied().filter(move |label| self.contains(*label))
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        labels.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Labels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of label names")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Labels, A::Error> {
                let mut labels = Labels::NONE;
                while let Some(name) = names.next_element::<std::borrow::Cow<'de, str>>()? {
                    labels = name.parse().map_or(labels, |label| labels.with(label));
                }
                Ok(labels)
            }
        }
        deserializer.deserialize_seq(Names)
    }
}
