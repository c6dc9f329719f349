//! Encryption at rest and keyed hashes, from one master key.
//!
//! A sealed value is bound to its place (table, row, column): moved to another row it does not open.

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Length of the master key in bytes.
pub const MASTER_KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// First byte of a sealed value: which key and format sealed it.
const KEY_VERSION: &str = "v1";

/// Seals and opens values, and hashes secrets that need only be compared. `Debug` shows nothing of the key.
#[derive(Clone)]
pub struct Sealer {
    cipher: Aes256GcmSiv,
    hash_key: [u8; 32],
}

/// A sealed value that does not open: another key, another place, or damage.
#[derive(Debug, thiserror::Error)]
#[error("a sealed value does not open with this key in this place")]
pub struct OpenError;

impl Sealer {
    /// Derives the keys for sealing and hashing from `master`.
    pub fn new(master: &[u8; MASTER_KEY_BYTES]) -> Self {
        let seal_key = hmac(master, &[b"payferry seal v1"]);
        Self { cipher: Aes256GcmSiv::new(&seal_key.into()), hash_key: hmac(master, &[b"payferry hash v1"]) }
    }

    /// Encrypts `plaintext` for `place` (such as `["webhook_endpoints", psp_id, "secret"]`) as printable text.
    pub fn seal(&self, place: &[&str], plaintext: &[u8]) -> String {
        let nonce_bytes: [u8; NONCE_BYTES] = rand::random();
        let aad = place.join("\u{1f}");
        let sealed = self
            .cipher
            .encrypt(&Nonce::from(nonce_bytes), Payload { msg: plaintext, aad: aad.as_bytes() })
            .expect("AES-GCM-SIV encrypts anything below 64 GiB");
        format!("{KEY_VERSION}.{}.{}", BASE64.encode(nonce_bytes), BASE64.encode(sealed))
    }

    /// Decrypts what [`Self::seal`] made for the same `place`.
    pub fn open(&self, place: &[&str], sealed: &str) -> Result<Vec<u8>, OpenError> {
        let mut parts = sealed.splitn(3, '.');
        let (Some(KEY_VERSION), Some(nonce), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(OpenError);
        };
        let nonce: [u8; NONCE_BYTES] =
            BASE64.decode(nonce).map_err(|_| OpenError)?.try_into().map_err(|_| OpenError)?;
        let body = BASE64.decode(body).map_err(|_| OpenError)?;
        let aad = place.join("\u{1f}");
        self.cipher.decrypt(&Nonce::from(nonce), Payload { msg: &body, aad: aad.as_bytes() }).map_err(|_| OpenError)
    }

    /// HMAC-SHA256 of `parts` under a key of this purpose, lower-case hex. Parts are length-prefixed, so `["a","bc"]`
    /// and `["ab","c"]` differ.
    pub fn keyed_hash(&self, parts: &[&[u8]]) -> String {
        hex::encode(hmac(&self.hash_key, parts))
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_in_its_place_and_with_its_key() {
        let sealer = Sealer::new(&[7; 32]);
        let sealed = sealer.seal(&["t", "row", "c"], b"whsec_x");
        assert_eq!(sealer.open(&["t", "row", "c"], &sealed).unwrap(), b"whsec_x");
        assert!(sealer.open(&["t", "other", "c"], &sealed).is_err());
        assert!(Sealer::new(&[8; 32]).open(&["t", "row", "c"], &sealed).is_err());
        assert!(!sealed.contains("whsec"));
        assert_ne!(sealed, sealer.seal(&["t", "row", "c"], b"whsec_x"), "a nonce is used once");
    }

    #[test]
    fn keyed_hashes_depend_on_how_parts_are_cut() {
        let sealer = Sealer::new(&[7; 32]);
        assert_ne!(sealer.keyed_hash(&[b"a", b"bc"]), sealer.keyed_hash(&[b"ab", b"c"]));
    }
}
