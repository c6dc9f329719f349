//! A webhook receiver: verifies webhooks, stores them, and fails on request.
//!
//! It implements the signature from the Standard Webhooks specification and shares no code with the sender.

use std::collections::{HashMap, VecDeque};

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use payferry_domain::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;

/// Maximum number of webhooks in one inbox; the oldest are dropped first. Enough for four webhooks of 10,000 payments.
pub const ENTRIES_MAX: usize = 50_000;
/// Maximum total bytes in all inboxes; above it, an inbox drops its own oldest webhooks for a new one.
pub const KEPT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of inboxes.
pub const INBOXES_MAX: usize = 64;
/// Maximum size of one webhook in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Accepted clock difference of a signature in seconds, as in the specification's reference verifiers.
const TOLERANCE_SECS: i64 = 300;
const SECRET_PREFIX: &str = "whsec_";

/// The inboxes by name.
#[derive(Debug, Default)]
pub struct Inboxes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: HashMap<String, Inbox>,
    kept_bytes: usize,
}

#[derive(Debug, Default)]
struct Inbox {
    received: u64,
    entries: VecDeque<InboxEntry>,
}

/// One received webhook.
#[derive(Debug, Clone, Serialize)]
pub struct InboxEntry {
    /// Sequence number within the inbox, from 1.
    pub number: u64,
    /// Time of receipt (wall clock).
    pub received_at: String,
    /// True if the signature matches the endpoint's secret and the timestamp is within the tolerance.
    pub verified: bool,
    /// Reason of a failed verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The header `webhook-id`.
    pub webhook_id: Option<String>,
    /// HTTP status of the answer.
    pub answered: u16,
    /// The body; a string if it is not JSON.
    pub body: Value,
    /// Length of the body in bytes.
    #[serde(skip)]
    pub bytes: usize,
    /// PSP that owns the webhook. Only this PSP can list it; without a known owner it is not listed.
    #[serde(skip)]
    pub owner: Option<String>,
}

/// The maximum number of inboxes is reached.
#[derive(Debug)]
pub struct Full;

impl Inboxes {
    /// Stores a webhook. Returns its number, which is also the count of webhooks received.
    pub fn keep(&self, name: &str, entry: impl FnOnce(u64) -> InboxEntry) -> Result<u64, Full> {
        let mut inner = self.inner.lock();
        let Inner { by_name, kept_bytes } = &mut *inner;
        if by_name.len() >= INBOXES_MAX && !by_name.contains_key(name) {
            return Err(Full);
        }
        let inbox = by_name.entry(name.to_owned()).or_default();
        inbox.received += 1;
        let entry = entry(inbox.received);
        *kept_bytes += entry.bytes;
        while inbox.entries.len() >= ENTRIES_MAX || *kept_bytes > KEPT_BYTES_MAX {
            let Some(oldest) = inbox.entries.pop_front() else { break };
            *kept_bytes -= oldest.bytes;
        }
        inbox.entries.push_back(entry);
        Ok(inbox.received)
    }

    /// Returns the count received so far, and up to `limit` of this PSP's entries with a number above `after`, oldest
    /// first. An entry without a known owner is only counted: it may be a genuine event of another PSP, sent just
    /// before that PSP changed its endpoint.
    pub fn list(&self, name: &str, psp_id: &str, after: u64, limit: usize) -> (u64, Vec<InboxEntry>) {
        let inner = self.inner.lock();
        let Some(inbox) = inner.by_name.get(name) else { return (0, Vec::new()) };
        let from = inbox.entries.partition_point(|entry| entry.number <= after);
        let own = inbox.entries.range(from..).filter(|entry| entry.owner.as_deref() == Some(psp_id));
        (inbox.received, own.take(limit).cloned().collect())
    }

    /// Removes all entries except other PSPs' entries; removes the inbox when it becomes empty.
    pub fn clear(&self, name: &str, psp_id: &str) {
        let mut inner = self.inner.lock();
        let Inner { by_name, kept_bytes } = &mut *inner;
        let Some(inbox) = by_name.get_mut(name) else { return };
        let mut taken_out = 0;
        inbox.entries.retain(|entry| {
            let stays = entry.owner.as_deref().is_some_and(|owner| owner != psp_id);
            taken_out += if stays { 0 } else { entry.bytes };
            stays
        });
        *kept_bytes -= taken_out;
        if inbox.entries.is_empty() {
            by_name.remove(name);
        }
    }
}

/// Header with the id of the event.
pub const HEADER_ID: &str = "webhook-id";

/// Verifies a webhook with an endpoint's secrets (`whsec_...`, the current one and a previous one that is still valid).
/// Standard Webhooks, version 1: base64 of HMAC-SHA256 over `id.timestamp.body`.
pub fn verify(headers: &HeaderMap, body: &[u8], secrets: &[String], now: Timestamp) -> Result<(), &'static str> {
    let [id, timestamp, signature] =
        [HEADER_ID, "webhook-timestamp", "webhook-signature"].map(|name| text(headers, name));
    let (Some(id), Some(timestamp), Some(signature)) = (id, timestamp, signature) else {
        return Err("a signature header is missing");
    };
    let sent: i64 = timestamp.parse().map_err(|_| "the timestamp is not a number")?;
    if (now.as_millis() / 1_000).saturating_sub(sent).saturating_abs() > TOLERANCE_SECS {
        return Err("the timestamp is outside the tolerance");
    }
    if secrets.is_empty() {
        return Err("no endpoint uses this inbox");
    }
    let signatures: Vec<Vec<u8>> = signature
        .split(' ')
        .filter_map(|one| one.strip_prefix("v1,"))
        .filter_map(|one| BASE64.decode(one).ok())
        .collect();
    for secret in secrets {
        let key = secret.strip_prefix(SECRET_PREFIX).and_then(|key| BASE64.decode(key).ok());
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.ok_or("the secret has the wrong format")?)
            .map_err(|_| "the secret has the wrong format")?;
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        if signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok()) {
            return Ok(());
        }
    }
    Err("no signature is by the endpoint's secret")
}

/// Returns the value of a header, if it is text.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference implementation.
    #[test]
    fn verifies_the_reference_example_and_rejects_variations() {
        let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()];
        let body = br#"{"test": 2432232314}"#;
        let now = Timestamp::from_secs(1_614_265_330);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let headers = |id: &str, signature: &str| {
            let values = [(HEADER_ID, id), ("webhook-timestamp", "1614265330"), ("webhook-signature", signature)];
            values.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed: HeaderMap = headers(id, signature);
        assert_eq!(verify(&signed, body, &secrets, now), Ok(()));
        assert_eq!(verify(&headers(id, &format!("v1,AAAA {signature}")), body, &secrets, now), Ok(()));
        assert!(verify(&signed, b"{}", &secrets, now).is_err());
        assert!(verify(&headers("other", signature), body, &secrets, now).is_err());
        let mut without_id = signed.clone();
        without_id.remove(HEADER_ID);
        assert!(verify(&without_id, body, &secrets, now).is_err());
        assert!(verify(&signed, body, &secrets, now.plus_secs(TOLERANCE_SECS + 1)).is_err());
        assert!(verify(&signed, body, &[], now).is_err());
        let other = ["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()];
        assert!(verify(&signed, body, &other, now).is_err());
    }

    fn entry(number: u64, bytes: usize, owner: Option<&str>) -> InboxEntry {
        InboxEntry {
            number,
            received_at: String::new(),
            verified: owner.is_some(),
            reason: None,
            webhook_id: None,
            answered: 200,
            body: Value::Null,
            bytes,
            owner: owner.map(str::to_owned),
        }
    }

    #[test]
    fn inboxes_are_bounded() {
        let inboxes = Inboxes::default();
        let entry = |number| entry(number, 0, Some("psp_1"));
        for _ in 0..ENTRIES_MAX + 5 {
            inboxes.keep("a", entry).unwrap();
        }
        let (received, entries) = inboxes.list("a", "psp_1", 0, usize::MAX);
        assert_eq!((received, entries.len(), entries[0].number), (50_005, ENTRIES_MAX, 6));
        assert_eq!(inboxes.list("a", "psp_1", 50_004, 10).1.len(), 1);
        assert_eq!(inboxes.list("a", "psp_1", 3, 10).1[0].number, 6);
        for n in 1..INBOXES_MAX {
            inboxes.keep(&n.to_string(), entry).unwrap();
        }
        assert!(inboxes.keep("one more", entry).is_err());
        inboxes.clear("a", "psp_1");
        inboxes.keep("one more", entry).unwrap();

        let large = |number| InboxEntry { bytes: KEPT_BYTES_MAX / 4, ..entry(number) };
        for _ in 0..5 {
            inboxes.keep("one more", large).unwrap();
        }
        let kept = |name| inboxes.list(name, "psp_1", 0, usize::MAX).1.len();
        assert_eq!((kept("one more"), kept("1")), (4, 1), "the inbox dropped its own oldest entries");
        inboxes.clear("one more", "psp_1");
        assert_eq!(inboxes.inner.lock().kept_bytes, 0);
    }

    #[test]
    fn entries_without_an_owner_are_counted_but_not_listed() {
        let inboxes = Inboxes::default();
        for owner in [Some("psp_1"), None, Some("psp_2")] {
            inboxes.keep("a", |number| entry(number, 10, owner)).unwrap();
        }
        let shown = |psp_id: &str| {
            let (received, entries) = inboxes.list("a", psp_id, 0, usize::MAX);
            (received, entries.iter().map(|entry| entry.number).collect::<Vec<_>>())
        };
        assert_eq!((shown("psp_1"), shown("psp_2"), shown("psp_3")), ((3, vec![1]), (3, vec![3]), (3, vec![])));
        inboxes.clear("a", "psp_1");
        assert_eq!((shown("psp_1"), shown("psp_2")), ((3, vec![]), (3, vec![3])));
        assert_eq!(inboxes.inner.lock().kept_bytes, 10, "entries without an owner are cleared too");
        inboxes.clear("a", "psp_2");
        assert_eq!(shown("psp_2"), (0, vec![]));
    }
}
