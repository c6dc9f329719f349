//! Subjects with an actor of their own. There are very many: they are counted, not listed by name, and quarantined one
//! by one.

use std::fmt;
use std::str::FromStr;

use payferry_domain::PaymentId;
use payferry_domain::outbound::OutboundId;
use serde::{Serialize, Serializer};

use super::ActorKind;

/// A payment or an outbound transfer that has an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActorSubject {
    /// A payment, including its refunds.
    Payment(PaymentId),
    /// A payout or withdrawal.
    OutboundTransfer(OutboundId),
}

impl ActorSubject {
    /// Kind of its actor.
    pub const fn kind(self) -> ActorKind {
        match self {
            Self::Payment(_) => ActorKind::Payment,
            Self::OutboundTransfer(_) => ActorKind::Sending,
        }
    }
}

impl From<PaymentId> for ActorSubject {
    fn from(id: PaymentId) -> Self {
        Self::Payment(id)
    }
}

impl From<OutboundId> for ActorSubject {
    fn from(id: OutboundId) -> Self {
        Self::OutboundTransfer(id)
    }
}

impl fmt::Display for ActorSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payment(id) => id.fmt(f),
            Self::OutboundTransfer(id) => id.fmt(f),
        }
    }
}

impl Serialize for ActorSubject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for ActorSubject {
    type Err = <PaymentId as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::OutboundTransfer).or_else(|_| text.parse().map(Self::Payment))
    }
}
