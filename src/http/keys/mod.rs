//! The account's API keys: `/api/v1/keys`. Only a key with the scope `full` sees and changes them.
//!
//! `read` lists keys, `change` creates, rotates and revokes them. `payferry_accounts::tenants` owns the rows. Operators have
//! routes of their own, without the limits of this module.

pub mod change;
pub mod read;

use payferry_accounts::tenants::KeyRecord;
use payferry_domain::{KeyId, KeyScope, Timestamp};
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::DateTime;

/// Active keys of an account that it creates itself, at most. A key counts until it expires or is revoked.
pub const KEYS_MAX: u64 = 50;

record! {
    fn of(key: KeyRecord, caller: KeyId, now: Timestamp) {
        let state = key.state(now);
    }

    /// An API key of the account, without its secret.
    #[derive(Debug)]
    pub struct ApiKeyRecord {
        #[schema(example = "key_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = key.id.to_string(),
        /// The purpose of the key; empty if it has no name.
        #[schema(example = "checkout")]
        name: String = key.name,
        /// read, payments, customers, money, webhooks or full.
        scopes: Vec<&'static str> = key.scopes.into_iter().map(KeyScope::as_str).collect(),
        /// active, expired or revoked.
        state: &'static str = state.as_str(),
        /// True for the key that sent this request.
        is_current: bool = key.id == caller,
        /// The key is refused from this time on; null if it does not expire.
        expires_at: Option<DateTime> = key.expires_at.map(DateTime::from),
        revoked_at: Option<DateTime> = key.revoked_at.map(DateTime::from),
        /// With a resolution of a minute.
        last_used_at: Option<DateTime> = key.last_used_at.map(DateTime::from),
        created_at: DateTime = key.created_at.into(),
        /// The revocation, the rotation, or the creation.
        updated_at: DateTime = key.updated_at.into(),
    }
}

fn id_of(text: &str) -> Result<KeyId, ApiError> {
    text.parse().map_err(|_| missing())
}

fn missing() -> ApiError {
    ApiError::NotFound("key")
}
