//! Failed authentication: PSPs by their keys, operators by their tokens.

/// Reason why a key was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyProblem {
    /// There is no `Authorization` header, or it has another scheme.
    Missing,
    /// The header has no well-formed key: it is cut or mistyped.
    Malformed,
    /// A sandbox key in production, or the reverse.
    WrongEnvironment,
    /// There is no such key.
    Unknown,
    /// The owner revoked it.
    Revoked,
    /// It has expired.
    Expired,
}

/// Reason why the operator was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProblem {
    /// The request has neither a token nor a session.
    Missing,
    /// The token is wrong.
    Wrong,
    /// The session has expired or was ended, or its token is not valid any more.
    SessionOver,
    /// The token is wrong, and too many others were wrong before; seconds until the count starts again.
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
            Self::Malformed => "This is not a valid API key: a part is missing or mistyped.",
            Self::WrongEnvironment => "The key is for another environment (sandbox: sk_test_, production: sk_live_).",
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

    /// Describes the problem in a sentence.
    pub fn detail(self) -> String {
        match self {
            Self::Missing => "Send an operator's token as a bearer token.".to_owned(),
            Self::Wrong => "This is not the token of an operator, or the operator was revoked.".to_owned(),
            Self::SessionOver => "The session is no longer valid; log in again.".to_owned(),
            Self::TooManyAttempts(secs) => {
                format!("This token is wrong too, and too many wrong ones were sent; try again in {secs} s.")
            }
        }
    }
}
