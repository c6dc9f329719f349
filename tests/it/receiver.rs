//! A PSP's webhook receiver, outside the sandbox: it outlives it, and verifies with somebody else's code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::world::PATIENCE;

/// A running receiver.
pub struct Receiver {
    pub url: String,
    inbox: Arc<Inbox>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Inbox {
    secret: Mutex<Option<String>>,
    /// Bodies by `webhook-id`, as often as they came.
    received: Mutex<BTreeMap<String, Vec<Value>>>,
    unverified: Mutex<Vec<String>>,
}

impl Receiver {
    pub async fn start() -> Self {
        let inbox = Arc::new(Inbox::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(inbox.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inbox, _serving: AbortOnDropHandle::new(serving) }
    }

    /// The secret that the service showed when the URL was set for the first time.
    pub fn verify_with(&self, secret: &str) {
        *self.inbox.secret.lock().unwrap() = Some(secret.to_owned());
    }

    /// How often each event came, and its body, once there are at least `count`.
    pub async fn until(&self, count: usize) -> BTreeMap<String, Vec<Value>> {
        let since = Instant::now();
        loop {
            let received = self.inbox.received.lock().unwrap().clone();
            if received.len() >= count {
                assert_eq!(
                    *self.inbox.unverified.lock().unwrap(),
                    Vec::<String>::new(),
                    "signatures that do not verify"
                );
                return received;
            }
            assert!(since.elapsed() < PATIENCE, "{} of {count} events arrived", received.len());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

async fn receive(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let Some(secret) = inbox.secret.lock().unwrap().clone() else { return StatusCode::SERVICE_UNAVAILABLE };
    if standardwebhooks::Webhook::new(&secret).unwrap().verify(&body, &headers).is_err() {
        inbox.unverified.lock().unwrap().push(id);
        return StatusCode::BAD_REQUEST;
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["event_id"], id.as_str());
    inbox.received.lock().unwrap().entry(id).or_default().push(body);
    StatusCode::OK
}
