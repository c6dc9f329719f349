//! API keys: format, scopes and storage.
//!
//! A key is `sk_test_` or `sk_live_`, its ULID, 32 random bytes in hexadecimal, and a checksum. The checksum detects a
//! truncated or mistyped key without a database lookup. Only a keyed hash of the whole key is stored.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::RwLock;
use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_entities::api_keys;
use payferry_runtime::seal::Sealer;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const SECRET_BYTES: usize = 32;
const ULID_CHARS: usize = 26;
const CHECKSUM_CHARS: usize = 8;

/// The environment of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMode {
    /// The sandbox.
    Test,
    /// Production.
    Live,
}

impl KeyMode {
    /// The prefix of keys of this mode.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Test => "sk_test_",
            Self::Live => "sk_live_",
        }
    }
}

/// A complete key. It is shown once, when it is created; `Debug` shows only its id. Its text is overwritten when it is
/// dropped.
#[derive(Clone)]
pub struct ApiKey {
    id: KeyId,
    text: Zeroizing<String>,
}

/// The error for a text that is not a key. It contains nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct NotAKey;

impl ApiKey {
    /// Generates a new key.
    pub fn generate(mode: KeyMode) -> Self {
        let id = KeyId::generate();
        let secret: Zeroizing<[u8; SECRET_BYTES]> = Zeroizing::new(rand::random());
        let secret = Zeroizing::new(hex::encode(*secret));
        let text = Zeroizing::new(format!("{}{}{}", mode.prefix(), id.ulid(), *secret));
        let checksum = crc32fast::hash(text.as_bytes());
        Self { id, text: Zeroizing::new(format!("{}{checksum:08x}", *text)) }
    }

    /// The public part, which identifies its row.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The complete key, to show only to its owner.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The stored value: a keyed hash, hex.
    pub fn hash(&self, sealer: &Sealer) -> String {
        sealer.keyed_hash(&[b"api key", self.text.as_bytes()])
    }

    /// Compares with a stored hash in constant time.
    pub fn matches(&self, sealer: &Sealer, stored: &str) -> bool {
        self.hash(sealer).as_bytes().ct_eq(stored.as_bytes()).into()
    }

    /// The row to store.
    pub fn row(
        &self,
        sealer: &Sealer,
        psp_id: PspId,
        name: &str,
        scopes: &[KeyScope],
        created_at: Timestamp,
    ) -> api_keys::Model {
        api_keys::Model {
            id: self.id.to_string(),
            psp_id: psp_id.to_string(),
            name: name.to_owned(),
            secret_hash: self.hash(sealer),
            scopes: serde_json::to_string(scopes).expect("scopes serialise as JSON"),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            created_at: created_at.as_millis(),
            updated_at: created_at.as_millis(),
        }
    }
}

/// The keys that were revoked on this node. A node refuses them at once, although it caches keys. Clones share the set.
#[derive(Debug, Clone, Default)]
pub struct RevokedKeys(Arc<RwLock<HashSet<KeyId>>>);

impl RevokedKeys {
    /// Adds a revoked key.
    pub fn add(&self, id: KeyId) {
        self.0.write().insert(id);
    }

    /// Returns true if the key was revoked on this node.
    pub fn contains(&self, id: KeyId) -> bool {
        self.0.read().contains(&id)
    }
}

impl FromStr for ApiKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let rest = [KeyMode::Test, KeyMode::Live].into_iter().find_map(|mode| text.strip_prefix(mode.prefix()));
        let rest = rest.ok_or(NotAKey)?;
        if !rest.is_ascii() || rest.len() != ULID_CHARS + 2 * SECRET_BYTES + CHECKSUM_CHARS {
            return Err(NotAKey);
        }
        let (body, checksum) = text.split_at(text.len() - CHECKSUM_CHARS);
        if format!("{:08x}", crc32fast::hash(body.as_bytes())) != checksum {
            return Err(NotAKey);
        }
        let id = format!("{}{}", KeyId::PREFIX, &rest[..ULID_CHARS]).parse().map_err(|_| NotAKey)?;
        Ok(Self { id, text: Zeroizing::new(text.to_owned()) })
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApiKey").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_parses_and_a_damaged_one_does_not() {
        let key = ApiKey::generate(KeyMode::Test);
        let text = key.expose();
        assert!(text.starts_with("sk_test_"));
        let read: ApiKey = text.parse().unwrap();
        assert_eq!(read.id(), key.id());
        let swapped = if text.ends_with('0') { '1' } else { '0' };
        for bad in
            [&text[..text.len() - 1], &format!("{}{swapped}", &text[..text.len() - 1]), "", "sk_test_", "sk_test_é"]
        {
            assert_eq!(bad.parse::<ApiKey>().unwrap_err(), NotAKey, "{bad}");
        }
        let other_world = text.replacen("test", "live", 1);
        assert!(other_world.parse::<ApiKey>().is_err(), "the checksum covers the mode");
    }

    #[test]
    fn only_the_hash_is_stored_and_debug_hides_the_key() {
        let sealer = Sealer::new(&[3; 32]);
        let key = ApiKey::generate(KeyMode::Live);
        let row = key.row(&sealer, PspId::generate(), "ci", &[KeyScope::Full], Timestamp(1));
        assert!(key.matches(&sealer, &row.secret_hash));
        assert!(!ApiKey::generate(KeyMode::Live).matches(&sealer, &row.secret_hash));
        let secret = &key.expose()[40..];
        assert!(!format!("{row:?}{key:?}").contains(secret));
        assert_eq!(row.scopes, "[\"full\"]");
    }
}
