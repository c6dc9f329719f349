//! The aggregate: plain data, stored as one JSON column.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::chain::{Address, FinalityPolicy, Hash32};
use crate::ids::{CustomerId, IdError, OperationId, PayoutId, PspId, WithdrawalId};
use crate::ledger::Asset;
use crate::money::{Amount, Token};
use crate::named::named;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

named! {
    /// Which kind of sending.
    SendingKind, "payout, withdrawal" {
        /// To a customer's wallet.
        Payout = "payout",
        /// To the wallet that the operator registered for the PSP.
        Withdrawal = "withdrawal",
    }
}

named! {
    /// Where a sending stands.
    SendingStatus, "pending, sent, failed" {
        /// Accepted, its amount reserved; being screened or on its way.
        Pending = "pending",
        /// Final by the tier.
        Sent = "sent",
        /// It will not be sent; the reserve is free again.
        Failed = "failed",
    }
}

named! {
    /// Why a sending failed.
    FailureReason, "address_blocked, customer_not_cleared, send_failed" {
        /// Screening blocked the address.
        AddressBlocked = "address_blocked",
        /// The customer may not transact any more, or has another wallet now.
        CustomerNotCleared = "customer_not_cleared",
        /// The chain refused it for a lasting reason.
        SendFailed = "send_failed",
    }
}

/// A payout's or a withdrawal's id; its text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendingId {
    /// `po_`
    Payout(PayoutId),
    /// `wd_`
    Withdrawal(WithdrawalId),
}

impl SendingId {
    /// Which kind it is.
    pub const fn kind(self) -> SendingKind {
        match self {
            Self::Payout(_) => SendingKind::Payout,
            Self::Withdrawal(_) => SendingKind::Withdrawal,
        }
    }

    /// The one operation that sends it.
    pub const fn operation(self) -> OperationId {
        match self {
            Self::Payout(id) => OperationId::payout_of(id),
            Self::Withdrawal(id) => OperationId::withdrawal_of(id),
        }
    }
}

impl fmt::Display for SendingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payout(id) => id.fmt(f),
            Self::Withdrawal(id) => id.fmt(f),
        }
    }
}

impl FromStr for SendingId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.starts_with(WithdrawalId::PREFIX) {
            text.parse().map(Self::Withdrawal)
        } else {
            text.parse().map(Self::Payout)
        }
    }
}

impl Serialize for SendingId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SendingId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What was accepted; fixed for its life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub id: SendingId,
    /// Whose money.
    pub psp_id: PspId,
    /// Who is paid; a payout's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The PSP's own object, given back in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// How much.
    pub amount: Amount,
    /// In which token.
    pub token: Token,
    /// The token's contract, on its chain.
    pub asset: Asset,
    /// To which wallet, pinned when the order was accepted.
    pub to: Address,
    /// What "final" means.
    pub finality: FinalityPolicy,
    /// When it was accepted.
    pub created_at: Timestamp,
}

/// A payout or a withdrawal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// What was accepted.
    pub order: Order,
    /// Commits so far; 1 after acceptance.
    pub version: u32,
    /// Announcements made so far.
    #[serde(default)]
    pub sequence: u32,
    /// Where it stands.
    pub status: SendingStatus,
    /// The newest revision of the settler's row that was applied.
    #[serde(default)]
    pub revision: u32,
    /// What screening says about the address, once it has spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Box<Verdict>>,
    /// The transaction that carried it, once sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// The same in words, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was sent or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl Sending {
    /// A fresh one at version 0, before its first commit.
    pub(super) fn new(order: Order) -> Self {
        Self {
            version: 0,
            sequence: 0,
            status: SendingStatus::Pending,
            revision: 0,
            verdict: None,
            tx_hash: None,
            failure_reason: None,
            failure: None,
            finished_at: None,
            updated_at: order.created_at,
            order,
        }
    }

    /// Its id.
    pub fn id(&self) -> SendingId {
        self.order.id
    }

    /// Whether it needs an actor.
    pub fn is_live(&self) -> bool {
        self.status == SendingStatus::Pending
    }

    /// What screening says about the address so far.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Whether the address waits for the operator's decision.
    pub fn is_in_review(&self) -> bool {
        self.is_live() && self.decision() == Some(Decision::Review)
    }

    /// Whether it is cleared to be sent: what the settler may sign.
    pub fn is_cleared(&self) -> bool {
        self.is_live() && self.decision() == Some(Decision::Allow)
    }
}
