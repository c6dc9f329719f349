//! What has an actor of its own, of which there are very many: they are counted, not named, and given up one by one.

use std::fmt;

use payferry_domain::PaymentId;
use payferry_domain::sending::SendingId;

use super::ActorKind;

/// A payment, or a payout or withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ferried {
    /// A payment; refunds are part of theirs.
    Payment(PaymentId),
    /// A payout or withdrawal.
    Sending(SendingId),
}

impl Ferried {
    /// The kind of its actor.
    pub const fn kind(self) -> ActorKind {
        match self {
            Self::Payment(_) => ActorKind::Payment,
            Self::Sending(_) => ActorKind::Sending,
        }
    }

    pub(crate) const fn payment(self) -> Option<PaymentId> {
        match self {
            Self::Payment(id) => Some(id),
            Self::Sending(_) => None,
        }
    }

    pub(crate) const fn sending(self) -> Option<SendingId> {
        match self {
            Self::Sending(id) => Some(id),
            Self::Payment(_) => None,
        }
    }
}

impl From<PaymentId> for Ferried {
    fn from(id: PaymentId) -> Self {
        Self::Payment(id)
    }
}

impl From<SendingId> for Ferried {
    fn from(id: SendingId) -> Self {
        Self::Sending(id)
    }
}

impl fmt::Display for Ferried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payment(id) => id.fmt(f),
            Self::Sending(id) => id.fmt(f),
        }
    }
}
