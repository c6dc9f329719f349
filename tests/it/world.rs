//! What a PSP does with the service, over real HTTP.

use std::time::{Duration, Instant};

use payferry_domain::{Chain, Token};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::receiver::Receiver;

/// How long a story waits for what it expects. Generous: the machines are slow and noisy, the stories are not.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A PSP's view of one service, wherever it runs.
pub struct World {
    pub url: String,
    pub api_key: String,
    pub http: reqwest::Client,
    pub merchant_id: String,
}

impl World {
    /// A client with this key, and no merchant yet.
    pub fn new(url: &str, api_key: &str) -> Self {
        payferry_actors::tls::install();
        let (url, api_key) = (url.to_owned(), api_key.to_owned());
        Self { url, api_key, http: reqwest::Client::new(), merchant_id: String::new() }
    }

    /// The same with a merchant, and `receiver` as the webhook endpoint.
    pub async fn connect(url: &str, api_key: &str, receiver: &Receiver) -> Self {
        let mut world = Self::new(url, api_key);
        let merchants = json!({"merchants": [
            {"external_id": "m-1", "name": "Ferry Shop", "email": "shop@example.com", "business_id": "B-1"}
        ]});
        let synced = world.ok(Method::POST, "/merchants/sync", merchants).await;
        world.merchant_id = synced["merchants"][0]["merchant_id"].as_str().unwrap().to_owned();
        let set = world.ok(Method::PATCH, "/api/v1/set_webhook", json!({"webhook_url": receiver.url})).await;
        if let Some(secret) = set["signing_secret"].as_str() {
            receiver.verify_with(secret);
        }
        world
    }

    /// A request with the PSP's key.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        self.try_call(method, path, body, None).await.unwrap()
    }

    /// A request with the PSP's key, of a service that may be gone.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Value,
        idempotency_key: Option<&str>,
    ) -> Result<(StatusCode, Value), reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.api_key);
        if !body.is_null() {
            request = request.json(&body);
        }
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await?;
        let status = response.status();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// A request that must succeed.
    pub async fn ok(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer:#}");
        answer
    }

    /// Makes a payment.
    pub async fn initiate(&self, amount: &str, token: Token, chain: &str) -> Value {
        let body =
            json!({"merchant_id": self.merchant_id, "amount": amount, "currency": token.as_str(), "chain": chain});
        self.ok(Method::POST, "/payments/initiate", body).await
    }

    /// Makes a payment and answers its id.
    pub async fn payment(&self, amount: &str, token: Token, chain: Chain) -> String {
        let made = self.initiate(amount, token, chain.as_str()).await;
        assert_eq!(made["status"], "pending", "{made:#}");
        made["payment_id"].as_str().unwrap().to_owned()
    }

    /// The payment as the PSP reads it.
    pub async fn read(&self, id: &str) -> Value {
        self.ok(Method::GET, &format!("/payments/{id}"), Value::Null).await
    }

    /// Reads the payment until it is as expected.
    pub async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let payment = self.read(id).await;
            if wanted(&payment) {
                return payment;
            }
            assert!(since.elapsed() < PATIENCE, "payment never became {what}: {payment:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads the payment until it has this status.
    pub async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, status, |payment| payment["status"] == status).await
    }

    /// The names of the payment's events in the feed, in order of sequence; fails if the sequence has a gap.
    pub async fn events(&self, id: &str) -> Vec<String> {
        let mut events: Vec<Value> = self.feed().await.into_iter().filter(|event| event["payment_id"] == id).collect();
        events.sort_by_key(|event| event["sequence"].as_i64().unwrap());
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence"], json!(index + 1), "a gap in {events:#?}");
        }
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// The whole feed, page by page.
    pub async fn feed(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ok(Method::GET, &format!("/api/v1/events?limit=200{after}"), Value::Null).await;
            let events = page["events"].as_array().unwrap();
            all.extend(events.iter().cloned());
            match page["next_after"].as_str() {
                Some(next) if page["has_more"] == true => after = format!("&after={next}"),
                _ => return all,
            }
        }
    }
}

/// A decimal amount as base units.
pub fn units(decimal: &Value) -> i64 {
    decimal
        .as_str()
        .unwrap_or_else(|| panic!("{decimal} is no amount"))
        .parse::<payferry_domain::Amount>()
        .unwrap()
        .units()
}
