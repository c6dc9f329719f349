//! Administration: PSPs with their policies, and their API keys. The changes themselves are in `payferry_accounts::tenants`, which
//! the command line uses too.

use std::str::FromStr;

use payferry_accounts::tenants::{Name, NameError, TenantError};
use payferry_domain::PaymentId;
use payferry_httpkit::{ApiError, Fault, Fields, QueryFields, between, read};

/// Maximum number of listed payments of a shard, or payouts and withdrawals.
pub(crate) const LINES_MAX: usize = 500;
/// Number of listed items if the request sets no limit.
pub(crate) const LINES_DEFAULT: usize = 100;

/// Converts an error about a PSP or an API key into a response.
pub fn tenant_failure(error: TenantError) -> ApiError {
    match error {
        TenantError::NoPsp(_) => ApiError::NotFound("psp"),
        TenantError::NoKey(_) => ApiError::NotFound("key"),
        TenantError::Unreadable(..) => ApiError::internal(error),
        TenantError::Database(error) => error.into(),
    }
}

/// Parses an id in the path. A malformed id is a client error.
pub(super) fn id_of<T: FromStr>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|_| ApiError::parameter(name, "invalid_id", "is not an id of this kind"))
}

/// Parses an id in the query.
pub(super) fn query_id<T: FromStr>(text: &str) -> Result<T, Fault> {
    text.parse().map_err(|_| Fault::new("invalid_id", "is not an id of this kind"))
}

/// Reads the number of items of a page.
pub(super) fn limit(query: &mut QueryFields, default: usize, max: usize) -> usize {
    let limit = query.optional("limit", |text| between(text, 1, max as u64));
    limit.and_then(|limit| limit.try_into().ok()).unwrap_or(default)
}

/// Parses a payment id in the path, or the id of the transfer that the payment carries.
pub(super) fn payment_id_of(text: &str) -> Result<PaymentId, ApiError> {
    PaymentId::of_public(text).map_or_else(|| id_of("payment_id", text), Ok)
}

pub(crate) fn name(value: &serde_json::Value) -> Result<Name, Fault> {
    read::string(value)?.parse().map_err(|error: NameError| {
        let code = match error {
            NameError::Empty => "empty",
            NameError::TooLong => "too_long",
            NameError::ControlCharacters => "invalid_characters",
        };
        Fault::new(code, error.to_string())
    })
}

/// Refuses unknown fields, so that a misspelt field does not make a change without effect.
pub(super) fn only(fields: &Fields<'_>, known: &[&str]) {
    fields.only(known, |_| {
        Fault::new("unknown_field", format!("is not a known field; known fields are {}", known.join(", ")))
    });
}
