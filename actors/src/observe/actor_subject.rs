//! Subjects with an actor of their own. There are very many: they are counted, not listed by name, and quarantined one
//! by one.

use std::str::FromStr;

use derive_more::{Display, From};
use payferry_domain::PaymentId;
use payferry_domain::outbound::OutboundId;
use serde_with::SerializeDisplay;

use super::ActorKind;

/// A payment or an outbound transfer that has an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, From, SerializeDisplay)]
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

impl FromStr for ActorSubject {
    type Err = <PaymentId as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::OutboundTransfer).or_else(|_| text.parse().map(Self::Payment))
    }
}
