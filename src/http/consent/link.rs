//! The token of a consent link: the customer, the expiry, and a signature over both.
//!
//! Tokens are not stored. Links differ by a nonce. Each is valid until it expires or the customer has accepted.

use payferry_domain::{CustomerId, Timestamp};
use payferry_runtime::seal::Sealer;
use subtle::ConstantTimeEq;

/// Lifetime of a link, seconds.
pub const LINK_SECS: i64 = 24 * 3_600;
/// Upper bound for a token's length in characters; real tokens are shorter.
const TOKEN_CHARS_MAX: usize = 256;
const NONCE_BYTES: usize = 8;
/// Domain separation: no other signature with the same key is valid for this purpose.
const PURPOSE: &[u8] = b"terms of service consent";

/// Reason why a token is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// The signature is wrong: the token was forged or altered.
    Forged,
    /// It has expired.
    Expired,
}

/// Creates a token and returns it with its expiry.
pub fn issue(sealer: &Sealer, customer_id: CustomerId, now: Timestamp) -> (String, Timestamp) {
    let expires_at = now.plus_secs(LINK_SECS);
    let nonce = hex::encode(rand::random::<[u8; NONCE_BYTES]>());
    let claim = format!("{customer_id}.{}.{nonce}", expires_at.as_millis());
    (format!("{claim}.{}", signature(sealer, &claim)), expires_at)
}

/// Verifies a token and returns its customer.
pub fn read(sealer: &Sealer, token: &str, now: Timestamp) -> Result<CustomerId, LinkError> {
    if token.len() > TOKEN_CHARS_MAX {
        return Err(LinkError::Forged);
    }
    let (claim, signed) = token.rsplit_once('.').ok_or(LinkError::Forged)?;
    if !bool::from(signature(sealer, claim).as_bytes().ct_eq(signed.as_bytes())) {
        return Err(LinkError::Forged);
    }
    let mut parts = claim.split('.');
    let (customer_id, expires_at) = (parts.next(), parts.next());
    let customer_id = customer_id.and_then(|id| id.parse().ok()).ok_or(LinkError::Forged)?;
    let expires_at = expires_at.and_then(|at| at.parse().ok()).map(Timestamp).ok_or(LinkError::Forged)?;
    if now >= expires_at { Err(LinkError::Expired) } else { Ok(customer_id) }
}

fn signature(sealer: &Sealer, claim: &str) -> String {
    sealer.keyed_hash(&[PURPOSE, claim.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn a_link_is_valid_for_a_day_and_one_customer() {
        let sealer = Sealer::new(&[7; 32]);
        let id = CustomerId::generate();
        let (token, expires_at) = issue(&sealer, id, NOW);
        assert_eq!(expires_at, NOW.plus_secs(86_400));
        assert_eq!(read(&sealer, &token, expires_at.plus_millis(-1)), Ok(id));
        assert_eq!(read(&sealer, &token, expires_at), Err(LinkError::Expired));
        assert_ne!(issue(&sealer, id, NOW).0, token, "each token is different");
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)), "{token}");
    }

    #[test]
    fn rejects_forged_and_altered_tokens() {
        let sealer = Sealer::new(&[7; 32]);
        let (token, _) = issue(&sealer, CustomerId::generate(), NOW);
        let other = CustomerId::generate().to_string();
        let swapped = format!("{other}{}", &token[other.len()..]);
        let longer = token.replacen(".17", ".18", 1);
        let (foreign, _) = issue(&Sealer::new(&[8; 32]), CustomerId::generate(), NOW);
        let huge = "x".repeat(1_000);
        for bad in ["", ".", "a.b.c", &token[..token.len() - 1], &swapped, &longer, &foreign, &huge] {
            assert_eq!(read(&sealer, bad, NOW), Err(LinkError::Forged), "{bad}");
        }
    }
}
