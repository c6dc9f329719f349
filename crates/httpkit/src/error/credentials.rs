//! Why somebody was not let in: PSPs by their keys, the operator by the token.

/// Why a key was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyProblem {
    /// There is no `Authorization` header, or another scheme.
    Missing,
    /// What stands there is no key: cut or mistyped.
    Malformed,
    /// A sandbox key in production, or the other way round.
    WrongEnvironment,
    /// There is no such key.
    Unknown,
    /// Its owner revoked it.
    Revoked,
    /// Its time is over.
    Expired,
}

/// Why the operator was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProblem {
    /// Neither a token nor a session was shown.
    Missing,
    /// The token is another.
    Wrong,
    /// The session is over, or of another token.
    SessionOver,
    /// Too many wrong tokens came from this address: seconds until the next is looked at.
    TooManyAttempts(u64),
}

impl KeyProblem {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Missing => "api_key_missing",
            Self::Malformed => "api_key_malformed",
            Self::WrongEnvironment => "api_key_wrong_environment",
            Self::Unknown => "api_key_unknown",
            Self::Revoked => "api_key_revoked",
            Self::Expired => "api_key_expired",
        }
    }

    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::Missing => "Send the header `Authorization: Bearer <API key>`.",
            Self::Malformed => "This is not a whole API key: a part is missing or mistyped.",
            Self::WrongEnvironment => "Keys of the sandbox (sk_test_) and of production (sk_live_) do not mix.",
            Self::Unknown => "There is no such API key.",
            Self::Revoked => "This API key was revoked.",
            Self::Expired => "This API key has expired.",
        }
    }
}

impl TokenProblem {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Missing => "operator_token_missing",
            Self::Wrong => "operator_token_wrong",
            Self::SessionOver => "operator_session_over",
            Self::TooManyAttempts(_) => "operator_token_attempts",
        }
    }

    /// What is wrong, in a sentence.
    pub fn detail(self) -> String {
        match self {
            Self::Missing => "Send the operator token as a bearer token.".to_owned(),
            Self::Wrong => "This is not the operator token.".to_owned(),
            Self::SessionOver => "The session is over; log in again.".to_owned(),
            Self::TooManyAttempts(secs) => {
                format!("Too many wrong tokens came from this address; no other is looked at for {secs} s.")
            }
        }
    }
}
