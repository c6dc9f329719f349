//! A PSP's webhook receiver: outlives the service, verifies signatures with an independent library, and fails on
//! request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::PATIENCE;

/// Polling interval.
const POLL: Duration = Duration::from_millis(50);

/// Behaviour of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// Answers 200 at once.
    #[default]
    Well,
    /// Answers this status at once; the webhook is recorded all the same.
    Status(u16),
    /// Answers this status to the first requests of each event (the second value is their number), then 200: a sender
    /// that retries more often succeeds.
    Hesitant(u16, usize),
    /// Answers 200 after this delay.
    Slow(Duration),
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The header `webhook-id`.
    pub webhook_id: String,
    /// The body.
    pub body: String,
    /// HTTP status of the answer.
    pub answered: u16,
    /// Time of receipt.
    pub at: Instant,
}

impl Delivery {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{}: {error}: {}", self.webhook_id, self.body))
    }
}

/// A running receiver.
pub struct Receiver {
    url: String,
    inbox: Arc<Inbox>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Inbox {
    secrets: Mutex<Vec<String>>,
    received: Mutex<Vec<Delivery>>,
    unverified: Mutex<Vec<String>>,
    manner: Mutex<(Manner, Option<Instant>)>,
}

impl Receiver {
    /// Starts a receiver on a free local port.
    pub async fn start() -> Self {
        let inbox = Arc::new(Inbox::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(inbox.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inbox, _serving: AbortOnDropHandle::new(serving) }
    }

    /// URL of the receiver.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Accepts another secret.
    pub fn verify_with(&self, secret: &str) {
        self.inbox.secrets.lock().push(secret.to_owned());
    }

    /// Behaves like this from now on.
    pub fn behave(&self, manner: Manner) {
        *self.inbox.manner.lock() = (manner, None);
    }

    /// Behaves like this for the period, and answers 200 afterwards.
    pub fn misbehave(&self, manner: Manner, period: Duration) {
        *self.inbox.manner.lock() = (manner, Some(Instant::now() + period));
    }

    /// All verified deliveries, in order of receipt.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.inbox.received.lock().clone()
    }

    /// Removes the deliveries with this `webhook-id`, to test that the loss is detected.
    pub fn forget(&self, webhook_id: &str) {
        self.inbox.received.lock().retain(|delivery| delivery.webhook_id != webhook_id);
    }

    /// The `webhook-id`s of deliveries that did not verify.
    pub fn unverified(&self) -> Vec<String> {
        self.inbox.unverified.lock().clone()
    }

    /// Waits for at least `count` events. Returns the accepted bodies by `webhook-id`, including repeated deliveries.
    pub async fn until(&self, count: usize) -> BTreeMap<String, Vec<Value>> {
        let since = Instant::now();
        loop {
            let mut received: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for delivery in self.inbox.received.lock().iter().filter(|delivery| delivery.answered == 200) {
                received.entry(delivery.webhook_id.clone()).or_default().push(delivery.json());
            }
            if received.len() >= count {
                assert_eq!(self.unverified(), Vec::<String>::new(), "deliveries with an invalid signature");
                return received;
            }
            assert!(since.elapsed() < PATIENCE, "{} of {count} events arrived", received.len());
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Inbox {
    fn manner(&self) -> Manner {
        let mut manner = self.manner.lock();
        if manner.1.is_some_and(|until| until <= Instant::now()) {
            *manner = (Manner::Well, None);
        }
        manner.0
    }

    fn verifies(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let secrets = self.secrets.lock().clone();
        secrets.iter().any(|secret| {
            standardwebhooks::Webhook::new(secret).is_ok_and(|webhook| webhook.verify(body, headers).is_ok())
        })
    }
}

async fn receive(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let at = Instant::now();
    let webhook_id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    if inbox.secrets.lock().is_empty() {
        // The PSP has not read its secret yet.
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if !inbox.verifies(&headers, &body) {
        inbox.unverified.lock().push(webhook_id);
        return StatusCode::BAD_REQUEST;
    }
    let status = match inbox.manner() {
        Manner::Well => StatusCode::OK,
        Manner::Status(status) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        Manner::Hesitant(status, times) => {
            let refused = |delivery: &&Delivery| delivery.webhook_id == webhook_id && delivery.answered == status;
            let refused = inbox.received.lock().iter().filter(refused).count();
            if refused < times { StatusCode::from_u16(status).unwrap_or(StatusCode::OK) } else { StatusCode::OK }
        }
        Manner::Slow(wait) => {
            tokio::time::sleep(wait).await;
            StatusCode::OK
        }
    };
    let body = String::from_utf8_lossy(&body).into_owned();
    inbox.received.lock().push(Delivery { webhook_id, body, answered: status.as_u16(), at });
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [&str; 2] = ["whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWo=", "whsec_YWJjZGVmZ2hpajAxMjM0NTY3ODk="];

    /// Sends a body signed with `secret`. Returns the status.
    async fn send(receiver: &Receiver, secret: &str, id: &str, body: &str) -> u16 {
        crate::install_tls();
        let now = chrono::Utc::now().timestamp();
        let signature = standardwebhooks::Webhook::new(secret).unwrap().sign(id, now, body.as_bytes()).unwrap();
        let request = reqwest::Client::new()
            .post(receiver.url())
            .header("webhook-id", id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", signature)
            .body(body.to_owned());
        request.send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn records_deliveries_that_verify_with_any_of_its_secrets() {
        let receiver = Receiver::start().await;
        assert_eq!(send(&receiver, SECRETS[0], "evt_0", "{}").await, 503);
        receiver.verify_with(SECRETS[0]);
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", r#"{"n":1}"#).await, 200);
        receiver.verify_with(SECRETS[1]);
        assert_eq!(send(&receiver, SECRETS[1], "evt_2", r#"{"n":2}"#).await, 200);
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", r#"{"n":1}"#).await, 200);
        let received = receiver.until(2).await;
        assert_eq!(received["evt_1"], [serde_json::json!({"n": 1}), serde_json::json!({"n": 1})]);
        let strange = "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDA=";
        assert_eq!(send(&receiver, strange, "evt_3", "{}").await, 400);
        assert_eq!(receiver.unverified(), ["evt_3"]);
    }

    #[tokio::test]
    async fn fails_for_the_requested_period() {
        let receiver = Receiver::start().await;
        receiver.verify_with(SECRETS[0]);
        receiver.behave(Manner::Status(500));
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 500);
        receiver.misbehave(Manner::Slow(Duration::from_millis(300)), Duration::from_mins(1));
        let since = Instant::now();
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 200);
        assert!(since.elapsed() >= Duration::from_millis(300));
        receiver.misbehave(Manner::Status(500), Duration::ZERO);
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 200);
        receiver.behave(Manner::Hesitant(503, 2));
        for (id, status) in [("evt_2", 503), ("evt_3", 503), ("evt_2", 503), ("evt_2", 200), ("evt_3", 503)] {
            assert_eq!(send(&receiver, SECRETS[0], id, "{}").await, status, "{id}");
        }
        let answered: Vec<u16> = receiver.deliveries().iter().map(|delivery| delivery.answered).collect();
        assert_eq!(answered, [500, 200, 200, 503, 503, 503, 200, 503]);
    }
}
