//! State of an outbound transfer: plain data, stored as one JSON column.

use std::str::FromStr;

use derive_more::Display;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::chain::{Address, FinalityPolicy, Hash32};
use crate::ids::{CustomerId, IdError, OperationId, PayoutId, PspId, WithdrawalId};
use crate::ledger::Asset;
use crate::money::{Amount, Token};
use crate::named::named;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

named! {
    /// Kind of an outbound transfer.
    OutboundKind, "payout, withdrawal" {
        /// To a customer's wallet.
        Payout = "payout",
        /// To the wallet that the operator registered for the PSP.
        Withdrawal = "withdrawal",
    }
}

named! {
    /// Status of an outbound transfer.
    OutboundStatus, "pending, sent, failed" {
        /// Accepted and reserved; being screened or sent.
        Pending = "pending",
        /// Sent, with the required finality.
        Sent = "sent",
        /// Will not be sent; the reservation is released.
        Failed = "failed",
    }
}

named! {
    /// Reason why an outbound transfer failed.
    FailureReason, "address_blocked, customer_not_cleared, send_failed" {
        /// Screening blocked the address.
        AddressBlocked = "address_blocked",
        /// The customer is no longer cleared, or has another wallet now.
        CustomerNotCleared = "customer_not_cleared",
        /// The chain rejected it for a permanent reason.
        SendFailed = "send_failed",
    }
}

/// Id of a payout or a withdrawal. The prefix shows the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, SerializeDisplay, DeserializeFromStr)]
pub enum OutboundId {
    /// `po_`
    Payout(PayoutId),
    /// `wd_`
    Withdrawal(WithdrawalId),
}

impl OutboundId {
    /// Returns the kind.
    pub const fn kind(self) -> OutboundKind {
        match self {
            Self::Payout(_) => OutboundKind::Payout,
            Self::Withdrawal(_) => OutboundKind::Withdrawal,
        }
    }

    /// Returns the operation that sends it.
    pub const fn operation(self) -> OperationId {
        match self {
            Self::Payout(id) => OperationId::payout_of(id),
            Self::Withdrawal(id) => OperationId::withdrawal_of(id),
        }
    }
}

impl FromStr for OutboundId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.starts_with(WithdrawalId::PREFIX) {
            text.parse().map(Self::Withdrawal)
        } else {
            text.parse().map(Self::Payout)
        }
    }
}

/// Accepted order. It never changes.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Payout or withdrawal id.
    pub id: OutboundId,
    /// PSP that owns the funds.
    pub psp_id: PspId,
    /// Recipient customer. Set only for payouts.
    pub customer_id: Option<CustomerId>,
    /// Reference from the PSP.
    pub reference: Option<String>,
    /// JSON object from the PSP, returned in events.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Amount.
    pub amount: Amount,
    /// Token.
    pub token: Token,
    /// Token contract on its chain.
    pub asset: Asset,
    /// Recipient wallet, fixed at acceptance.
    pub to: Address,
    /// Required finality by amount.
    pub finality: FinalityPolicy,
    /// W3C trace context of the request, as the value of a `traceparent` header.
    pub traceparent: Option<String>,
    /// Time of acceptance.
    pub created_at: Timestamp,
}

/// A payout or a withdrawal.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboundTransfer {
    /// Accepted order.
    pub order: Order,
    /// Number of commits; 1 after acceptance.
    pub version: u32,
    /// Number of announcements.
    #[serde(default)]
    pub sequence: u32,
    /// Current status.
    pub status: OutboundStatus,
    /// Newest applied revision of the settler's row.
    #[serde(default)]
    pub revision: u32,
    /// Screening verdict about the address, once known.
    pub verdict: Option<Box<Verdict>>,
    /// Transaction, once sent.
    pub tx_hash: Option<Hash32>,
    /// Failure reason.
    pub failure_reason: Option<FailureReason>,
    /// Failure reason, as text.
    pub failure: Option<String>,
    /// Time at which it was sent or failed.
    pub finished_at: Option<Timestamp>,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

impl OutboundTransfer {
    /// Creates an outbound transfer at version 0, before its first commit.
    pub(super) fn new(order: Order) -> Self {
        Self {
            version: 0,
            sequence: 0,
            status: OutboundStatus::Pending,
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

    /// Returns the id.
    pub fn id(&self) -> OutboundId {
        self.order.id
    }

    /// Returns true if it needs an actor.
    pub fn is_live(&self) -> bool {
        self.status == OutboundStatus::Pending
    }

    /// Returns the screening decision about the address, if known.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Returns true if the address waits for a decision of the operator.
    pub fn is_in_review(&self) -> bool {
        self.is_live() && self.decision() == Some(Decision::Review)
    }

    /// Returns true if screening allowed it, so that the settler may sign.
    pub fn is_cleared(&self) -> bool {
        self.is_live() && self.decision() == Some(Decision::Allow)
    }
}
