//! Labels: the finer facts beside the status, as a set.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;

named! {
    /// One finer fact about a payment.
    Label, "a label in upper case" {
        /// Less than what was due arrived.
        Underpaid = "UNDERPAID",
        /// More than what was due arrived.
        Overpaid = "OVERPAID",
        /// Money arrived after the payment's time.
        Late = "LATE",
        /// More than one transfer counts.
        Multiple = "MULTIPLE",
        /// Money arrived after confirmation.
        Excess = "EXCESS",
        /// The chain took back money or a settlement at least once.
        Reorged = "REORGED",
        /// Money of another token arrived, whatever became of it.
        WrongToken = "WRONG_TOKEN",
        /// Money arrived on another chain, whatever became of it.
        WrongChain = "WRONG_CHAIN",
        /// A transfer waits for the operator's decision.
        InReview = "IN_REVIEW",
        /// Screening blocked money that arrived, whatever became of it.
        FundsBlocked = "FUNDS_BLOCKED",
        /// The settlement failed for a lasting reason and has not succeeded since.
        SettlementFailed = "SETTLEMENT_FAILED",
    }
}

/// A set of labels in two bytes; serialised as a list of names. Names that this version does not know are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Labels(u16);

impl Labels {
    /// No labels.
    pub const NONE: Self = Self(0);

    const fn bit(label: Label) -> u16 {
        1 << label as u16
    }

    /// Whether `label` is in the set.
    pub const fn contains(self, label: Label) -> bool {
        self.0 & Self::bit(label) != 0
    }

    /// The set with `label`.
    #[must_use]
    pub const fn with(self, label: Label) -> Self {
        Self(self.0 | Self::bit(label))
    }

    /// The set without `label`.
    #[must_use]
    pub const fn without(self, label: Label) -> Self {
        Self(self.0 & !Self::bit(label))
    }

    /// The set with or without `label`.
    #[must_use]
    pub const fn set(self, label: Label, present: bool) -> Self {
        if present { self.with(label) } else { self.without(label) }
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The labels in the order of the interface.
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
