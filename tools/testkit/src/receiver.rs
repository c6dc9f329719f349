//! Webhook receiver: a listener on this machine that verifies the signature and timestamp of each webhook and passes it
//! on.
//!
//! Deliberately absent: which webhooks are expected.

use std::sync::Arc;

use alloy::primitives::Address;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::serve::ListenerExt;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::signature;

/// Largest body of a webhook, in bytes: above the size of the largest payment.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Path of the receiver's URL.
const PATH: &str = "/hooks";

/// Body of a webhook of a payment, as far as the tools use it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebhookEvent {
    /// Event name, such as `payment.confirmed`.
    pub event: String,
    /// Id of the payment, or of the payout or withdrawal.
    pub payment_id: String,
    /// Id of the event.
    pub event_id: String,
    /// Time of the event by the service's clock.
    pub timestamp: String,
    /// Position among the events of the payment, from 1.
    #[serde(default)]
    pub sequence: u32,
    /// Status of the payment at the event.
    #[serde(default)]
    pub status: String,
    /// The PSP's reference.
    pub reference: Option<String>,
    /// Amount due.
    #[serde(default)]
    pub amount: String,
    /// Amount received.
    #[serde(default)]
    pub amount_received: String,
    /// Token.
    #[serde(default)]
    pub token: String,
    /// Chain.
    #[serde(default)]
    pub chain: String,
    /// Transaction of the event.
    pub tx_hash: Option<String>,
    /// The PSP's share.
    pub psp_amount: Option<String>,
    /// The treasury's share.
    pub treasury_fee: Option<String>,
    /// Reason of the status `failed`.
    pub failure_reason: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Recipient of a payout or withdrawal.
    pub address: Option<Address>,
    /// Id of the refund.
    pub refund_id: Option<String>,
    /// Amount of the refund.
    pub refund_amount: Option<String>,
    /// Recipient of the refund.
    pub refund_address: Option<Address>,
}

/// A request to the receiver.
#[derive(Debug)]
pub struct WebhookRequest {
    /// Time when its body was complete.
    pub at: Instant,
    /// The same time by the wall clock.
    pub at_wall: DateTime<Utc>,
    /// Header `webhook-id`.
    pub webhook_id: String,
    /// Body.
    pub body: Bytes,
    /// Result of the verification of signature and timestamp.
    pub verified: Result<(), &'static str>,
}

impl WebhookRequest {
    /// Returns the event of a payment, or the reason why the request has none.
    pub fn event(&self) -> Result<WebhookEvent, &'static str> {
        self.verified?;
        serde_json::from_slice(&self.body).map_err(|_| "the body is not an event")
    }
}

/// A running receiver. Dropping it stops it.
pub struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _serving: AbortOnDropHandle<()>,
}

struct Shared {
    secrets: RwLock<Vec<String>>,
    reply: Box<dyn Fn(WebhookRequest) -> BoxFuture<'static, StatusCode> + Send + Sync>,
}

impl Receiver {
    /// Starts a receiver on a free port of this machine that calls `deliver` with each request before it responds: with
    /// success, if the request verifies. `deliver` must not block.
    pub async fn accepting(deliver: impl Fn(WebhookRequest) + Send + Sync + 'static) -> anyhow::Result<Self> {
        Self::start(move |request| {
            let status = if request.verified.is_ok() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            deliver(request);
            std::future::ready(status)
        })
        .await
    }

    /// Starts a receiver on a free port of this machine. As soon as a secret is known, it responds to each request,
    /// verified or not, with the status that `reply` returns.
    pub async fn start<F>(reply: impl Fn(WebhookRequest) -> F + Send + Sync + 'static) -> anyhow::Result<Self>
    where
        F: Future<Output = StatusCode> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        let shared =
            Arc::new(Shared { secrets: RwLock::default(), reply: Box::new(move |request| reply(request).boxed()) });
        let router = Router::new()
            .fallback(receive)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let serving = tokio::spawn(async move {
            // `serve` retries accept errors and does not end by itself.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Returns the URL of the receiver.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds a secret that webhooks may be signed with.
    pub fn verify_with(&self, secret: &str) {
        self.shared.secrets.write().push(secret.to_owned());
    }

    /// Returns the secret that was added last.
    pub fn secret(&self) -> Option<String> {
        self.shared.secrets.read().last().cloned()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let (at, at_wall) = (Instant::now(), Utc::now());
    let webhook_id = headers.get(signature::HEADER_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let secrets = shared.secrets.read().clone();
    if secrets.is_empty() {
        // The secret is not known yet. The sender retries.
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let verified = signature::verify(&headers, &body, &secrets, at_wall.timestamp());
    (shared.reply)(WebhookRequest { at, at_wall, webhook_id, body, verified }).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::client::Client;

    const BODY: &str = r#"{"event":"payment.settled","payment_id":"pay_1","event_id":"evt_1","sequence":3,
        "timestamp":"2026-01-01T00:00:00.000Z","status":"settled","labels":["MULTIPLE"],"metadata":{"a":1}}"#;

    async fn send(receiver: &Receiver, secret: &str, body: &str, age_secs: i64) -> u16 {
        let client = Client::new(receiver.url(), 1, Duration::from_secs(5)).unwrap();
        let at = chrono::Utc::now().timestamp() - age_secs;
        let request = signature::signed_request(secret, PATH, "evt_1", at, body).unwrap();
        client.call(request).await.unwrap().status.as_u16()
    }

    #[tokio::test]
    async fn accepts_only_webhooks_signed_now_with_the_secret() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let receiver = Receiver::accepting({
            let received = received.clone();
            move |one| received.lock().push(one)
        });
        let receiver = receiver.await.unwrap();
        let (ours, strange) = ("whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWo=", "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDA=");
        assert_eq!(send(&receiver, ours, BODY, 0).await, 503, "no secret is known yet");
        receiver.verify_with(ours);
        assert_eq!(send(&receiver, ours, BODY, 0).await, 200);
        assert_eq!(send(&receiver, strange, BODY, 0).await, 400);
        assert_eq!(send(&receiver, ours, BODY, 301).await, 400);
        assert_eq!(send(&receiver, ours, "[]", 0).await, 200);
        let received = std::mem::take(&mut *received.lock());
        let events: Vec<_> = received.iter().map(WebhookRequest::event).collect();
        let [Ok(one), Err(forged), Err(old), Err(odd)] = events.as_slice() else { panic!("{received:?}") };
        assert_eq!((received[0].webhook_id.as_str(), one.sequence, one.labels.len()), ("evt_1", 3, 1));
        assert_eq!(*forged, "no signature is by the endpoint's secret");
        assert_eq!(*old, "the timestamp is not now");
        assert_eq!(*odd, "the body is not an event");
    }
}
