//! Errors of commands: what the engine returns to the HTTP layer.
//!
//! Each distinguishes a command that had no effect from one whose outcome is unknown. The HTTP layer maps them to status codes.

use crate::money::{Amount, Token};
use crate::payment::{ChainCandidate, Rejection};
use crate::{Chain, sending};

/// Why a payment was not made. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InitiateError {
    /// The token is not taken on that chain, or on none.
    #[error("{token} is not available{}", .chain.map(|chain| format!(" on {chain}")).unwrap_or_default())]
    TokenUnavailable {
        /// Which.
        token: Token,
        /// Where; `None` for `best`.
        chain: Option<Chain>,
    },
    /// The chain does not answer or has stopped; `None`: all of them.
    #[error("the chain is not available at the moment")]
    ChainAway {
        /// Which.
        chain: Option<Chain>,
        /// What `best` looked at.
        candidates: Vec<ChainCandidate>,
    },
    /// The operator has paused the chain, or all that take the token.
    #[error("new payments are paused on {}", .chain.map_or("every chain", Chain::as_str))]
    ChainPaused {
        /// Which; `None`: all of them.
        chain: Option<Chain>,
    },
    /// The operator has paused the PSP.
    #[error("this account is paused by the operator")]
    PspPaused,
    /// More than may be sent at once, of a transfer.
    #[error("at most {send_max} may be sent at once")]
    AboveSendLimit {
        /// The ceiling.
        send_max: Amount,
    },
    /// Screening blocks the wallet that a transfer is to go to.
    #[error("screening blocks the wallet that the transfer is to go to")]
    RecipientBlocked,
    /// Screening has not cleared the wallet that a transfer is to go to.
    #[error("screening has not cleared the wallet that the transfer is to go to")]
    RecipientInReview,
    /// Screening does not say in time what it thinks of the wallet that a transfer is to go to.
    #[error("screening did not answer in time about the wallet that the transfer is to go to")]
    ScreeningAway,
    /// The PSP's policy wants a customer.
    #[error("this PSP requires a customer")]
    CustomerRequired,
    /// The idempotency key is taken: read the answer kept with it.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// Too much at once; try again soon.
    #[error("too many payments are being made at the moment")]
    Busy,
    /// The database is away; try again.
    #[error("{0}")]
    Unavailable(String),
    /// The commit's outcome is unknown: with an idempotency key, try again.
    #[error("{0}")]
    Unknown(String),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// There is no such payment.
    #[error("no such payment")]
    NotFound,
    /// It does not fit the payment.
    #[error(transparent)]
    Rejected(Rejection),
    /// The payment failed too often and waits for an operator.
    #[error("the payment is quarantined")]
    Quarantined,
    /// The PSP's balance does not have what is to be sent.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// More would be sent on this day than the ceiling allows.
    #[error("the ceiling of what may be sent on one day is reached")]
    AboveDailyLimit,
    /// More than may be sent at once.
    #[error("at most {send_max} may be sent at once")]
    AboveSendLimit {
        /// The ceiling.
        send_max: Amount,
    },
    /// The idempotency key is taken.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// Nothing came of it: try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may have been carried out, or may yet be. Look at the payment, or ask again with the same idempotency key: a
    /// refund that is asked for anew is another refund.
    #[error("{0}")]
    Unknown(String),
}

/// Why an order was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OrderError {
    /// The chain does not run here, or does not take the token.
    #[error("{token} is not available on {chain}")]
    TokenUnavailable {
        /// The token.
        token: Token,
        /// The chain.
        chain: Chain,
    },
    /// The balance does not have it.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// More than may be sent at once.
    #[error("at most {send_max} may be sent at once")]
    AboveSendLimit {
        /// The ceiling.
        send_max: Amount,
    },
    /// More than may be sent on this day.
    #[error("at most {send_daily_max} may be sent on one day")]
    AboveDailyLimit {
        /// The ceiling.
        send_daily_max: Amount,
    },
    /// The idempotency key is taken.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// The journal has no room.
    #[error("too many requests wait to be written")]
    Busy,
    /// Try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may or may not have been accepted.
    #[error("{0}")]
    Unknown(String),
}

/// Why a command to a payout or withdrawal was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendingCommandError {
    /// There is none with this id.
    #[error("no such payout or withdrawal")]
    NotFound,
    /// It does not fit.
    #[error(transparent)]
    Rejected(sending::Rejection),
    /// It failed too often and waits for an operator.
    #[error("it is quarantined")]
    Quarantined,
    /// Nothing came of it: try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may have been carried out, or may yet be: look.
    #[error("{0}")]
    Unknown(String),
}
