//! Webhook receiver of the tests: the testkit's receiver with an inbox. It outlives the service and can be made to
//! fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use payferry_testkit::receiver::WebhookRequest;
use serde_json::Value;

use crate::eventually;

/// Manner of the responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReceiverBehaviour {
    /// Answers 200 at once.
    #[default]
    Well,
    /// This status, at once. The delivery is recorded.
    Status(u16),
    /// This status to the first requests of each event, then 200.
    FailThenAccept(u16, usize),
    /// 200, after this time.
    Slow(Duration),
}

/// A delivery that it received.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Header `webhook-id`.
    pub webhook_id: String,
    /// Body, byte for byte.
    pub body: String,
    /// Status of the response.
    pub answered: u16,
    /// Time of arrival.
    pub at: Instant,
}

impl Delivery {
    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{}: {error}: {}", self.webhook_id, self.body))
    }
}

/// A running receiver.
pub struct Receiver {
    receiver: payferry_testkit::receiver::Receiver,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    received: Mutex<Vec<Delivery>>,
    unverified: Mutex<Vec<String>>,
    receiver_behaviour: Mutex<(ReceiverBehaviour, Option<Instant>)>,
}

impl Receiver {
    /// Starts a receiver on a free port of this machine.
    pub async fn start() -> Self {
        let inbox = Arc::new(Inbox::default());
        let replying = Arc::clone(&inbox);
        let receiver =
            payferry_testkit::receiver::Receiver::start(move |request| Arc::clone(&replying).reply(request)).await;
        Self { receiver: receiver.unwrap(), inbox }
    }

    /// Returns its URL.
    pub fn url(&self) -> &str {
        self.receiver.url()
    }

    /// Adds a secret that deliveries may be signed with.
    pub fn verify_with(&self, secret: &str) {
        self.receiver.verify_with(secret);
    }

    /// Changes the manner of the responses.
    pub fn behave(&self, receiver_behaviour: ReceiverBehaviour) {
        *self.inbox.receiver_behaviour.lock() = (receiver_behaviour, None);
    }

    /// Changes the manner of the responses for `period`.
    pub fn set_behaviour(&self, receiver_behaviour: ReceiverBehaviour, period: Duration) {
        *self.inbox.receiver_behaviour.lock() = (receiver_behaviour, Some(Instant::now() + period));
    }

    /// Returns every verified delivery, in order of arrival.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.inbox.received.lock().clone()
    }

    /// Removes the deliveries with this `webhook-id`, to test that the audit misses them.
    pub fn forget(&self, webhook_id: &str) {
        self.inbox.received.lock().retain(|delivery| delivery.webhook_id != webhook_id);
    }

    /// Returns the `webhook-id`s of the requests that did not verify.
    pub fn unverified(&self) -> Vec<String> {
        self.inbox.unverified.lock().clone()
    }

    /// Waits for at least `count` events with a successful delivery. Returns the bodies of these deliveries by
    /// `webhook-id`.
    pub async fn until(&self, count: usize) -> BTreeMap<String, Vec<Value>> {
        let look = async || {
            let mut received: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for delivery in self.inbox.received.lock().iter().filter(|delivery| delivery.answered == 200) {
                received.entry(delivery.webhook_id.clone()).or_default().push(delivery.json());
            }
            if received.len() >= count { Ok(received) } else { Err(received.len()) }
        };
        let received = eventually(format!("{count} events arrive"), look).await;
        assert_eq!(self.unverified(), Vec::<String>::new(), "deliveries with an invalid signature");
        received
    }
}

impl Inbox {
    fn receiver_behaviour(&self) -> ReceiverBehaviour {
        let mut receiver_behaviour = self.receiver_behaviour.lock();
        if receiver_behaviour.1.is_some_and(|until| until <= Instant::now()) {
            *receiver_behaviour = (ReceiverBehaviour::Well, None);
        }
        receiver_behaviour.0
    }

    async fn reply(self: Arc<Self>, request: WebhookRequest) -> StatusCode {
        let at = Instant::now();
        let WebhookRequest { webhook_id, body, verified, .. } = request;
        if verified.is_err() {
            self.unverified.lock().push(webhook_id);
            return StatusCode::BAD_REQUEST;
        }
        let answered = match self.receiver_behaviour() {
            ReceiverBehaviour::Well => 200,
            ReceiverBehaviour::Status(status) => status,
            ReceiverBehaviour::FailThenAccept(status, times) => {
                let refused = |delivery: &&Delivery| delivery.webhook_id == webhook_id && delivery.answered == status;
                if self.received.lock().iter().filter(refused).count() < times { status } else { 200 }
            }
            ReceiverBehaviour::Slow(delay) => {
                // The sender may time out meanwhile. Then this future is dropped, and the delivery is not recorded.
                tokio::time::sleep(delay).await;
                200
            }
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        self.received.lock().push(Delivery { webhook_id, body, answered, at });
        StatusCode::from_u16(answered).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use payferry_testkit::client::Client;
    use payferry_testkit::signature::signed_request;

    use super::*;

    const SECRETS: [&str; 2] = ["whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWo=", "whsec_YWJjZGVmZ2hpajAxMjM0NTY3ODk="];

    /// Sends a body signed with `secret`. Returns the status.
    async fn send(receiver: &Receiver, secret: &str, id: &str, body: &str) -> u16 {
        let client = Client::new(receiver.url(), 1, Duration::from_secs(5)).unwrap();
        let request = signed_request(secret, "/", id, chrono::Utc::now().timestamp(), body).unwrap();
        client.call(request).await.unwrap().status.as_u16()
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
        receiver.behave(ReceiverBehaviour::Status(500));
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 500);
        receiver.set_behaviour(ReceiverBehaviour::Slow(Duration::from_millis(300)), Duration::from_mins(1));
        let since = Instant::now();
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 200);
        assert!(since.elapsed() >= Duration::from_millis(300));
        receiver.set_behaviour(ReceiverBehaviour::Status(500), Duration::ZERO);
        assert_eq!(send(&receiver, SECRETS[0], "evt_1", "{}").await, 200);
        receiver.behave(ReceiverBehaviour::FailThenAccept(503, 2));
        for (id, status) in [("evt_2", 503), ("evt_3", 503), ("evt_2", 503), ("evt_2", 200), ("evt_3", 503)] {
            assert_eq!(send(&receiver, SECRETS[0], id, "{}").await, status, "{id}");
        }
        let answered: Vec<u16> = receiver.deliveries().iter().map(|delivery| delivery.answered).collect();
        assert_eq!(answered, [500, 200, 200, 503, 503, 503, 200, 503]);
    }
}
