//! A payer's signed authorization to take the amount due (EIP-3009), as the payment stores it.
//!
//! Not here: the signature. Only the settler needs it, and it never reaches the payment.

use serde::{Deserialize, Serialize};

use super::transfer::{Decision, Verdict};
use crate::chain::{Address, Hash32};
use crate::ids::OperationId;
use crate::money::Amount;
use crate::named::named;
use crate::time::Timestamp;

/// Maximum number of authorizations of one payment.
pub const AUTHORIZATIONS_MAX: u16 = 20;
/// Shortest time from acceptance to `valid_before`: screening, and a few blocks.
pub const AUTHORIZATION_WINDOW_MIN_SECS: i64 = 60;

named! {
    /// Message that the payer signed.
    AuthorizationKind, "receive_with_authorization, transfer_with_authorization" {
        /// `ReceiveWithAuthorization` to the contract. Its nonce commits to this payment.
        Receive = "receive_with_authorization",
        /// `TransferWithAuthorization` to the payment's wallet, with a nonce of the payer's choice.
        Transfer = "transfer_with_authorization",
    }
}

named! {
    /// State of an authorization. The settler's row shows how far a queued one is.
    AuthorizationState, "screening, review, queued, final, failed, expired" {
        /// The payer is being screened.
        Screening = "screening",
        /// The operator decides about the payer.
        Review = "review",
        /// The settler submits it.
        Queued = "queued",
        /// It is collected, in a final block.
        Final = "final",
        /// It will not be collected.
        Failed = "failed",
        /// It was not collected before its end.
        Expired = "expired",
    }
}

named! {
    /// Reason why an authorization failed.
    AuthorizationFailure, "payer_blocked, nonce_used, not_due" {
        /// Screening blocked the payer.
        PayerBlocked = "payer_blocked",
        /// The payer used or cancelled it.
        NonceUsed = "nonce_used",
        /// The payment was paid in another way, or it ended.
        NotDue = "not_due",
    }
}

/// How an authorization ended without being collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationEnd {
    /// It failed.
    Failed(AuthorizationFailure),
    /// Its end passed.
    Expired,
}

/// The terms of an authorization, to accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationOrder {
    /// Id of the operation that will collect it.
    pub operation: OperationId,
    /// Message that was signed.
    pub kind: AuthorizationKind,
    /// Number of the attempt to which the nonce of `Receive` commits.
    pub attempt: u16,
    /// Payer.
    pub from: Address,
    /// Amount.
    pub value: Amount,
    /// Its end, exclusive.
    pub valid_before: Timestamp,
    /// Nonce.
    pub nonce: Hash32,
}

/// An authorization.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization {
    /// Operation that collects it.
    pub operation: OperationId,
    /// Message that was signed.
    pub kind: AuthorizationKind,
    /// Number of the attempt; the first is 1.
    pub attempt: u16,
    /// Payer.
    pub from: Address,
    /// Amount.
    pub value: Amount,
    /// Its end, exclusive.
    pub valid_before: Timestamp,
    /// Nonce.
    pub nonce: Hash32,
    /// Verdict about the payer, once known.
    pub verdict: Option<Box<Verdict>>,
    /// Current state.
    pub state: AuthorizationState,
    /// Newest applied revision of the settler's row.
    #[serde(default)]
    pub revision: u32,
    /// Transaction that collected it, in a final block.
    pub tx_hash: Option<Hash32>,
    /// Reason of the failure. Set exactly while failed.
    pub failure: Option<AuthorizationFailure>,
    /// Details of a failure or an expiry, for people.
    pub detail: Option<String>,
    /// Time of acceptance.
    pub accepted_at: Timestamp,
}

impl Authorization {
    pub(super) fn new(order: &AuthorizationOrder, at: Timestamp) -> Self {
        let AuthorizationOrder { operation, kind, attempt, from, value, valid_before, nonce } = *order;
        Self {
            operation,
            kind,
            attempt,
            from,
            value,
            valid_before,
            nonce,
            verdict: None,
            state: AuthorizationState::Screening,
            revision: 0,
            tx_hash: None,
            failure: None,
            detail: None,
            accepted_at: at,
        }
    }

    /// Returns the decision about the payer.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_deref().map(|verdict| verdict.decision)
    }

    /// Returns true if it may still be collected, or was.
    pub fn is_valid(&self) -> bool {
        !matches!(self.state, AuthorizationState::Failed | AuthorizationState::Expired)
    }

    /// Returns true if it is neither collected nor ended.
    pub fn is_unfinished(&self) -> bool {
        self.is_screened_now() || self.state == AuthorizationState::Queued
    }

    /// Returns true if it waits for a decision about the payer.
    pub fn is_screened_now(&self) -> bool {
        matches!(self.state, AuthorizationState::Screening | AuthorizationState::Review)
    }
}
