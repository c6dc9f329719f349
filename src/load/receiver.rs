//! The load tester's webhook receiver: a listener on this machine that verifies every signature and timestamp, and hands
//! on what came.
//!
//! It verifies by the Standard Webhooks specification alone, with the code of the sandbox's inbox, which shares none with
//! the sender. Deliberately absent: what should have come.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::serve::ListenerExt;
use parking_lot::RwLock;
use payferry_domain::Timestamp;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::sandbox::{Signed, verify_signature};

/// Bytes of a webhook: more than the largest payment's.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Where it listens, below its address.
const PATH: &str = "/payferry-load";

/// The flat body of a webhook, as far as the load tester looks at it.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Such as payment.confirmed.
    pub event: String,
    /// Which payment.
    pub payment_id: String,
    /// Which event.
    pub event_id: String,
    /// When it happened, by the service's clock.
    pub timestamp: String,
    /// Its place among the payment's.
    #[serde(default)]
    pub sequence: u32,
    /// The payment's status then.
    #[serde(default)]
    pub status: String,
    /// The PSP's own reference.
    #[serde(default)]
    pub reference: Option<String>,
    /// Due.
    #[serde(default)]
    pub amount: String,
    /// Received.
    #[serde(default)]
    pub amount_received: String,
    /// USDC or USDT.
    #[serde(default)]
    pub token: String,
    /// On which chain.
    #[serde(default)]
    pub chain: String,
    /// The transaction it is about.
    #[serde(default)]
    pub tx_hash: Option<String>,
    /// The PSP's share.
    #[serde(default)]
    pub psp_amount: Option<String>,
    /// The fee.
    #[serde(default)]
    pub treasury_fee: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub failure_reason: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// A webhook as it came.
#[derive(Debug)]
pub struct Arrived {
    /// When it was read whole.
    pub at: Instant,
    /// The same, by the wall clock.
    pub at_wall: Timestamp,
    /// The header `webhook-id`.
    pub webhook_id: String,
    /// Its body.
    pub event: Event,
}

/// What the receiver tells.
#[derive(Debug)]
pub enum Heard {
    /// Genuine.
    Webhook(Box<Arrived>),
    /// Not: why, and the header `webhook-id`.
    Refused(&'static str, String),
}

/// A running receiver. It ends when this is dropped.
#[derive(Debug)]
pub struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _serving: AbortOnDropHandle<()>,
}

struct Shared {
    secrets: RwLock<Vec<String>>,
    hear: Box<dyn Fn(Heard) + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Receiver {
    /// On a free port of this machine. `hear` is called for each request before it is answered, and must not wait.
    pub async fn start(hear: impl Fn(Heard) + Send + Sync + 'static) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        let shared = Arc::new(Shared { secrets: RwLock::default(), hear: Box::new(hear) });
        let router = Router::new()
            .fallback(receive)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let serving = tokio::spawn(async move {
            // Accept errors are tried again inside; it does not end by itself.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Takes webhooks that are signed with this secret, too.
    pub fn verify_with(&self, secret: &str) {
        self.shared.secrets.write().push(secret.to_owned());
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let (at, at_wall) = (Instant::now(), Timestamp::from(chrono::Utc::now()));
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let signed = Signed {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
    };
    let webhook_id = signed.id.unwrap_or_default().to_owned();
    let secrets = shared.secrets.read().clone();
    if secrets.is_empty() {
        // The secret is on its way; the sender tries again.
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if let Err(why) = verify_signature(signed, &body, &secrets, at_wall) {
        (shared.hear)(Heard::Refused(why, webhook_id));
        return StatusCode::BAD_REQUEST;
    }
    match serde_json::from_slice(&body) {
        Ok(event) => (shared.hear)(Heard::Webhook(Box::new(Arrived { at, at_wall, webhook_id, event }))),
        Err(_) => (shared.hear)(Heard::Refused("the body is not an event", webhook_id)),
    }
    StatusCode::OK
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use axum::http::Method;
    use parking_lot::Mutex;
    use payferry_actors::webhook::signature::{self, Secret};

    use super::*;
    use crate::load::client::{Client, request};

    const BODY: &str = r#"{"event":"payment.settled","payment_id":"pay_1","event_id":"evt_1","sequence":3,
        "timestamp":"2026-01-01T00:00:00.000Z","status":"settled","labels":["MULTIPLE"],"metadata":{"a":1}}"#;

    async fn send(receiver: &Receiver, secret: &Secret, body: &str, age_secs: i64) -> u16 {
        let client = Client::new(receiver.url(), 1, Duration::from_secs(5)).unwrap();
        let mut request = request(Method::POST, PATH, body.to_owned().into());
        let at = chrono::Utc::now().timestamp() - age_secs;
        let mut set = |name: &'static str, value: String| request.headers_mut().insert(name, value.parse().unwrap());
        set(signature::HEADER_ID, "evt_1".to_owned());
        set(signature::HEADER_TIMESTAMP, at.to_string());
        set(signature::HEADER_SIGNATURE, secret.sign("evt_1", at, body));
        client.call(request).await.unwrap().status.as_u16()
    }

    #[tokio::test]
    async fn only_what_is_signed_now_with_the_secret_is_taken() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let receiver = Receiver::start({
            let heard = heard.clone();
            move |one| heard.lock().push(one)
        });
        let receiver = receiver.await.unwrap();
        let (ours, strange) = (Secret::generate(), Secret::generate());
        assert_eq!(send(&receiver, &ours, BODY, 0).await, 503, "no secret is known yet");
        receiver.verify_with(&ours.reveal());
        assert_eq!(send(&receiver, &ours, BODY, 0).await, 200);
        assert_eq!(send(&receiver, &strange, BODY, 0).await, 400);
        assert_eq!(send(&receiver, &ours, BODY, 301).await, 400);
        assert_eq!(send(&receiver, &ours, "[]", 0).await, 200);
        let heard = std::mem::take(&mut *heard.lock());
        let [Heard::Webhook(one), Heard::Refused(forged, _), Heard::Refused(old, _), Heard::Refused(odd, _)] =
            heard.as_slice()
        else {
            panic!("{heard:?}");
        };
        assert_eq!((one.webhook_id.as_str(), one.event.sequence, one.event.labels.len()), ("evt_1", 3, 1));
        assert_eq!(*forged, "no signature is by the endpoint's secret");
        assert_eq!(*old, "the timestamp is not now");
        assert_eq!(*odd, "the body is not an event");
    }
}
