//! Signatures of the Standard Webhooks scheme (<https://www.standardwebhooks.com>): HMAC-SHA256 over
//! `{id}.{timestamp}.{body}`; secrets are encoded as `whsec_` and base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Header with the event's id, identical for every attempt.
pub const HEADER_ID: &str = "webhook-id";
/// Header with the attempt's time, seconds since the epoch.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// Header with one or more signatures, separated by spaces.
pub const HEADER_SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// A signing secret. `Debug` does not reveal it.
#[derive(Clone)]
pub struct Secret {
    key: Vec<u8>,
}

/// The text is not a signing secret.
#[derive(Debug, thiserror::Error)]
#[error("not a signing secret")]
pub struct BadSecret;

impl Secret {
    /// A new random secret.
    pub fn generate() -> Self {
        let random: [u8; SECRET_BYTES] = rand::random();
        Self { key: random.to_vec() }
    }

    /// Parses the format of [`Self::reveal`].
    pub fn parse(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(BadSecret)?;
        Ok(Self { key: BASE64.decode(encoded).map_err(|_| BadSecret)? })
    }

    /// Formats the secret as `whsec_...`, to be shown once to its owner.
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", BASE64.encode(&self.key))
    }

    /// Signs one attempt; returns `v1,...`.
    pub fn sign(&self, event_id: &str, timestamp_secs: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC accepts a key of any length");
        mac.update(format!("{event_id}.{timestamp_secs}.{body}").as_bytes());
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Builds the signature header: one signature per secret, newest first.
pub fn header(secrets: &[Secret], event_id: &str, timestamp_secs: i64, body: &str) -> String {
    secrets.iter().map(|secret| secret.sign(event_id, timestamp_secs, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn independent_verifier_accepts_exactly_both_secrets_of_a_rotation() {
        let (new, old, other) = (Secret::generate(), Secret::generate(), Secret::generate());
        let now = chrono::Utc::now().timestamp();
        let body = r#"{"event":"payment.settled","text":"ünï"}"#;
        let mut headers = http::HeaderMap::new();
        headers.insert(HEADER_ID, "evt_1".parse().unwrap());
        headers.insert(HEADER_TIMESTAMP, now.to_string().parse().unwrap());
        let signature = header(&[new.clone(), old.clone()], "evt_1", now, body);
        headers.insert(HEADER_SIGNATURE, signature.parse().unwrap());
        let verifies = |secret: &Secret, body: &str| {
            standardwebhooks::Webhook::new(&secret.reveal()).unwrap().verify(body.as_bytes(), &headers).is_ok()
        };
        assert!(verifies(&new, body) && verifies(&old, body));
        assert!(!verifies(&other, body));
        assert!(!verifies(&new, "{}"));
    }

    #[test]
    fn secret_round_trips_and_is_hidden_in_debug() {
        let secret = Secret::generate();
        assert_eq!(Secret::parse(&secret.reveal()).unwrap().reveal(), secret.reveal());
        assert!(secret.reveal().starts_with("whsec_"));
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(Secret::parse("whsec_!").is_err() && Secret::parse("sk_test").is_err());
    }
}
