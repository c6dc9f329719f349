//! Labels: details beside the status, as a set.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;

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
