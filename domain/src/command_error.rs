//! Errors of commands: what the engine returns to the HTTP layer.
//!
//! Each error distinguishes a command that had no effect from a command whose outcome is unknown. The HTTP layer maps them
//! to status codes.

use std::error::Error;

use crate::invariants::Violated;
use crate::money::{Amount, Token};
use crate::{Chain, outbound};

/// Reason why a command did not lead to a transition. `R` is the rejection of the aggregate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError<R: Error + 'static> {
    /// The command is not allowed in the current state.
    #[error(transparent)]
    Rejected(R),
    /// The aggregate would violate an invariant, which is a defect.
    #[error(transparent)]
    Violated(Violated),
}

impl<R: Error + 'static> From<TransitionError<R>> for CommandError<R> {
    fn from(error: TransitionError<R>) -> Self {
        match error {
            TransitionError::Rejected(rejection) => Self::Rejected(rejection),
            TransitionError::Violated(violated) => Self::Violated(violated),
        }
    }
}

/// Reason why a payment was not created. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InitiateError {
    /// The token is not supported on that chain, or on any chain.
    #[error("{token} is not available{}", .chain.map(|chain| format!(" on {chain}")).unwrap_or_default())]
    TokenUnavailable {
        /// The token.
        token: Token,
        /// The chain; `None` for `best`.
        chain: Option<Chain>,
    },
    /// The chain, or every chain, does not respond or has stalled.
    #[error("the chain is currently unavailable")]
    ChainAway,
    /// The operator has paused the chain, or (`None`) all chains that support the token.
    #[error("new payments are paused on {}", .0.map_or("every chain", Chain::as_str))]
    ChainPaused(Option<Chain>),
    /// The operator has paused the PSP.
    #[error("this account is paused by the operator")]
    PspPaused,
    /// The amount of a transfer is above the limit per transaction.
    #[error("at most {0} may be sent at once")]
    AboveSendLimit(Amount),
    /// Screening blocks the recipient wallet of a transfer.
    #[error("screening blocks the recipient wallet of the transfer")]
    RecipientBlocked,
    /// Screening has not cleared the recipient wallet of a transfer.
    #[error("screening has not cleared the recipient wallet of the transfer")]
    RecipientInReview,
    /// Screening did not decide on the recipient wallet of a transfer in time.
    #[error("screening did not decide on the recipient wallet of the transfer in time")]
    ScreeningAway,
    /// The PSP's policy requires a customer.
    #[error("this PSP requires a customer")]
    CustomerRequired,
    /// The payment would violate an invariant, which is a defect.
    #[error(transparent)]
    Violated(Violated),
    /// The idempotency key is taken: read its stored response.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// Too many requests: retry soon.
    #[error("too many payments are being created; retry soon")]
    Busy,
    /// The database is unavailable: retry.
    #[error("{0}")]
    Unavailable(String),
    /// The outcome of the commit is unknown: retry with the same idempotency key.
    #[error("{0}")]
    Unknown(String),
}

/// Reason why a payment or an outbound transfer did not carry out a command, or was not accepted. `R` is the rejection of the aggregate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError<R: Error + 'static> {
    /// The payment or outbound transfer does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The command is not allowed in the current state.
    #[error(transparent)]
    Rejected(R),
    /// The change would violate an invariant, which is a defect. The actor is quarantined.
    #[error(transparent)]
    Violated(Violated),
    /// The actor is stopped after too many failures or a violated invariant, and waits for an operator.
    #[error("it is quarantined")]
    Quarantined,
    /// The chain is not configured, or does not support the token.
    #[error("{token} is not available on {chain}")]
    TokenUnavailable {
        /// The token.
        token: Token,
        /// The chain.
        chain: Chain,
    },
    /// The PSP's balance is too low.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// The daily send limit would be exceeded.
    #[error("the daily send limit is reached")]
    AboveDailyLimit,
    /// The amount is above the limit per transaction.
    #[error("at most {0} may be sent at once")]
    AboveSendLimit(Amount),
    /// The idempotency key is taken.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// The journal's queue is full.
    #[error("too many requests are waiting; retry soon")]
    Busy,
    /// The command had no effect: retry.
    #[error("{0}")]
    Unavailable(String),
    /// The command may have been carried out, or may still be. Read the state, or retry with the same idempotency key.
    /// With a new key, the refund is paid twice.
    #[error("{0}")]
    Unknown(String),
}

/// Reason why an order was not accepted.
pub type OrderError = CommandError<outbound::Rejection>;
