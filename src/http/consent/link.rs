//! The token of a consent link: whose consent, until when, and a signature over both.
//!
//! Nothing is stored of it. Links differ by a nonce; each is good until its time is over or somebody has accepted.

use payferry_actors::seal::Sealer;
use payferry_domain::{CustomerId, Timestamp};
use subtle::ConstantTimeEq;

/// How long a link is good, seconds.
pub const LINK_SECS: i64 = 24 * 3_600;
/// Characters of a token, above what they have.
const TOKEN_CHARS_MAX: usize = 256;
const NONCE_BYTES: usize = 8;
/// What the signature is for, so that nothing else that is signed with the key can stand in its place.
const PURPOSE: &[u8] = b"terms of service consent";

/// Why a token opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// It was not made here, or changed on its way.
    Forged,
    /// Its time is over.
    Expired,
}

/// Makes a token, and says until when it is good.
pub fn issue(sealer: &Sealer, customer_id: CustomerId, now: Timestamp) -> (String, Timestamp) {
    let expires_at = now.plus_secs(LINK_SECS);
    let nonce = hex::encode(rand::random::<[u8; NONCE_BYTES]>());
    let claim = format!("{customer_id}.{}.{nonce}", expires_at.as_millis());
    (format!("{claim}.{}", signature(sealer, &claim)), expires_at)
}

/// Whose consent the token is for.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn a_link_is_good_for_a_day_and_for_one_customer() {
        let sealer = Sealer::new(&[7; 32]);
        let id = CustomerId::generate();
        let (token, expires_at) = issue(&sealer, id, NOW);
        assert_eq!(expires_at, NOW.plus_secs(86_400));
        assert_eq!(read(&sealer, &token, expires_at.plus_millis(-1)), Ok(id));
        assert_eq!(read(&sealer, &token, expires_at), Err(LinkError::Expired));
        assert_ne!(issue(&sealer, id, NOW).0, token, "each is another");
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)), "{token}");
    }

    #[test]
    fn what_was_not_made_here_opens_nothing() {
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
