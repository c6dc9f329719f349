//! Kinds of chain errors, as labels of metrics and alerts. The messages are those of the errors.

use super::client::ClientError;

/// Reason why a chain cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degradation {
    /// No endpoint is reachable, or the reachable ones fail.
    Away,
    /// Requests time out.
    Slow,
    /// The endpoints limit the rate of requests.
    RateLimited,
    /// The endpoints are behind the cursor.
    Lagging,
    /// The endpoints serve another chain.
    WrongChain,
    /// Contracts differ from the configuration.
    Misconfigured,
    /// Responses are malformed or contradict each other.
    Inconsistent,
    /// Even the smallest range is rejected.
    Range,
    /// The endpoints reject the request.
    Refused,
    /// The service's own database failed.
    Database,
}

impl Degradation {
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

    /// Name in metrics.
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

    /// Kind of a failed call.
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
