//! Kinds of trouble with a chain, for metrics and alarms. The words for people are the errors' own.

use super::client::ClientError;

/// Why a chain cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No endpoint can be reached, or those that can are out of order.
    Away,
    /// Answers take too long.
    Slow,
    /// The endpoints allow no more requests for now.
    RateLimited,
    /// The endpoints are behind what was read.
    Lagging,
    /// The endpoints are of another chain.
    WrongChain,
    /// The chain has not what the configuration says.
    Misconfigured,
    /// Answers make no sense, or do not fit together.
    Inconsistent,
    /// Not even the smallest range is answered.
    Range,
    /// The endpoints refuse what is asked.
    Refused,
    /// The service's own database.
    Database,
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Away,
        Self::Slow,
        Self::RateLimited,
        Self::Lagging,
        Self::WrongChain,
        Self::Misconfigured,
        Self::Inconsistent,
        Self::Range,
        Self::Refused,
        Self::Database,
    ];

    /// The name as it stands in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Slow => "slow",
            Self::RateLimited => "rate_limited",
            Self::Lagging => "lagging",
            Self::WrongChain => "wrong_chain",
            Self::Misconfigured => "misconfigured",
            Self::Inconsistent => "inconsistent",
            Self::Range => "range",
            Self::Refused => "refused",
            Self::Database => "database",
        }
    }

    /// Of a call.
    pub fn of_call(error: &ClientError) -> Self {
        match error {
            ClientError::Unavailable(_) => Self::Away,
            ClientError::Timeout => Self::Slow,
            ClientError::RateLimited { .. } => Self::RateLimited,
            ClientError::UnknownBlock => Self::Lagging,
            ClientError::WrongChain { .. } => Self::WrongChain,
            ClientError::Malformed(_) => Self::Inconsistent,
            ClientError::RangeTooLarge(_) => Self::Range,
            ClientError::AlreadyKnown
            | ClientError::NonceTooLow
            | ClientError::Underpriced(_)
            | ClientError::InsufficientFunds
            | ClientError::Reverted(_)
            | ClientError::Refused { .. } => Self::Refused,
        }
    }
}
