//! Why a command was not carried out.

use std::error::Error;

use crate::money::Amount;

/// Why a payment or an outbound transfer did not carry out a command. `R` is the aggregate's own rejection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError<R: Error + 'static> {
    /// The payment or outbound transfer does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The command does not fit its state.
    #[error(transparent)]
    Rejected(R),
    /// Its actor failed too often and waits for an operator.
    #[error("it is quarantined")]
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
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// Nothing was written: try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may have been carried out, or may yet be. Read the state, or ask again with the same idempotency key: a refund
    /// that is asked for anew is another refund.
    #[error("{0}")]
    Unknown(String),
}
