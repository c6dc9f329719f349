//! Parameters and fields that several routes share, and the errors of administration.

use std::str::FromStr;

use payferry_accounts::tenants::{NAME_CHARS_MAX, Name, NameError, TenantError};
use payferry_domain::PaymentId;
use payferry_domain::payment::Decision;
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::{ApiError, Fault, RequestBody, Rule, read, rule};

/// Maximum number of listed payments of a shard, or payouts and withdrawals.
pub(crate) const LINES_MAX: u64 = 500;
/// Number of these if the request sets no limit.
pub(crate) const LINES_DEFAULT: u64 = 100;

/// Converts an error about a PSP or an API key into a response.
pub fn tenant_failure(error: TenantError) -> ApiError {
    match error {
        TenantError::NoPsp(_) => ApiError::NotFound("psp"),
        TenantError::NoKey(_) => ApiError::NotFound("key"),
        TenantError::KeyNotActive(_) => {
            ApiError::conflict("key_not_active", "The key was revoked or has expired; create another one.")
        }
        TenantError::Unreadable(..) => ApiError::internal(error),
        TenantError::Database(error) => error.into(),
    }
}

/// Parses an id in the path. A malformed id is a client error.
pub(super) fn id_of<T: FromStr>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|_| ApiError::parameter(name, "invalid_id", "is not an id of this kind"))
}

/// Parses a payment id in the path, or the id of the transfer that the payment carries.
pub(super) fn payment_id_of(text: &str) -> Result<PaymentId, ApiError> {
    PaymentId::of_public(text).map_or_else(|| id_of("payment_id", text), Ok)
}

/// The name of a PSP or a key.
pub const NAME: Rule<Name> = Rule {
    read: |value| {
        read::string(value)?.parse().map_err(|error: NameError| {
            let code = match error {
                NameError::Empty => "empty",
                NameError::TooLong => "too_long",
                NameError::ControlCharacters => "invalid_characters",
            };
            Fault::new(code, error.to_string())
        })
    },
    // Spaces around a name do not count.
    schema: || (rule::short::<NAME_CHARS_MAX>().schema)(),
};

/// A decision about a transfer or an address: `allow` or `block`.
pub(crate) const DECISION: Rule<Decision> = Rule {
    read: |value| word(&[("allow", Decision::Allow), ("block", Decision::Block)], value),
    schema: || rule::one_of(["allow", "block"]),
};

/// The fault of an unknown field. Misspelt fields are refused, because they would make a change without effect.
pub(crate) fn unknown<T: RequestBody>(_: &str) -> Fault {
    Fault::new("unknown_field", format!("is not a known field; known fields are {}", T::names().join(", ")))
}
