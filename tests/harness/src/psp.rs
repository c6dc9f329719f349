//! HTTP client of a PSP.

use std::time::{Duration, Instant};

use payferry_domain::{Amount, Chain, Token};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::{PATIENCE, install_tls};

/// Polling interval.
const POLL: Duration = Duration::from_millis(50);
/// Longest pause before a request is repeated; pauses start at [`POLL`] and double.
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Items per page.
const PAGE: usize = 200;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum idle time of a connection: well below the 10 s after which the service closes it, because a request could
/// meet the closing connection.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// One PSP with one merchant. Clones are equivalent.
#[derive(Clone, Debug)]
pub struct Psp {
    /// API URL.
    pub url: String,
    /// API key.
    pub api_key: String,
    /// The merchant created by [`Psp::connect`].
    pub merchant_id: String,
    http: reqwest::Client,
}

impl Psp {
    /// Creates a client with this key and without a merchant.
    pub fn new(url: &str, api_key: &str) -> Self {
        install_tls();
        let http = reqwest::Client::builder().timeout(TIMEOUT).pool_idle_timeout(IDLE_MAX).build().unwrap();
        Self { url: url.to_owned(), api_key: api_key.to_owned(), merchant_id: String::new(), http }
    }

    /// Creates a client with a merchant, and sets `receiver` as the webhook endpoint.
    pub async fn connect(url: &str, api_key: &str, receiver: &Receiver) -> Self {
        let mut psp = Self::new(url, api_key);
        psp.merchant_id = psp.merchant("m-1").await;
        psp.set_webhook(receiver).await;
        psp
    }

    /// Creates a merchant or finds the existing one. Returns its id.
    pub async fn merchant(&self, external_id: &str) -> String {
        let merchant = json!({
            "external_id": external_id, "name": "Ferry Shop", "email": "shop@example.com", "business_id": "B-1",
        });
        let synced = self.ok(Method::POST, "/merchants/sync", json!({"merchants": [merchant]})).await;
        synced["merchants"][0]["merchant_id"].as_str().unwrap().to_owned()
    }

    /// Sets `receiver` as the webhook endpoint; the receiver gets the secret the first time.
    pub async fn set_webhook(&self, receiver: &Receiver) {
        let set = self.ok(Method::PATCH, "/api/v1/set_webhook", json!({"webhook_url": receiver.url()})).await;
        if let Some(secret) = set["signing_secret"].as_str() {
            receiver.verify_with(secret);
        }
    }

    /// Sends a request to a service that may be down; a null body sends no body.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        idempotency_key: Option<&str>,
    ) -> Result<(StatusCode, Value), reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.api_key);
        if !body.is_null() {
            request = request.json(body);
        }
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await?;
        let status = response.status();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Sends a request that must be answered.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let answer = self.try_call(method.clone(), path, &body, None).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// Sends a request that must succeed.
    pub async fn ok(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer:#}");
        answer
    }

    /// Request body to create a payment; `chain` may be `best`.
    pub fn initiation(&self, amount: &str, token: Token, chain: &str) -> Value {
        json!({"merchant_id": self.merchant_id, "amount": amount, "currency": token.as_str(), "chain": chain})
    }

    /// Creates a payment. Returns the service's answer.
    pub async fn initiate(&self, amount: &str, token: Token, chain: &str) -> Value {
        self.ok(Method::POST, "/payments/initiate", self.initiation(amount, token, chain)).await
    }

    /// Creates a payment. Returns its id.
    pub async fn payment(&self, amount: &str, token: Token, chain: Chain) -> String {
        let made = self.initiate(amount, token, chain.as_str()).await;
        assert_eq!(made["status"], "pending", "{made:#}");
        made["payment_id"].as_str().unwrap().to_owned()
    }

    /// Sends a POST with an idempotency key until it succeeds, across kills and outages of the service. Returns the
    /// answer and the number of repetitions. An answer that forbids a retry is returned as the error.
    pub async fn insist(
        &self,
        path: &str,
        body: &Value,
        key: &str,
        patience: Duration,
    ) -> Result<(Value, u32), String> {
        let (since, mut again) = (Instant::now(), 0);
        loop {
            let why = match self.try_call(Method::POST, path, body, Some(key)).await {
                Ok((status, answer)) if status.is_success() => return Ok((answer, again)),
                // The first attempt still runs, the rate limit applies, or the service is unavailable.
                Ok((status, answer)) if matches!(status.as_u16(), 429 | 503) => format!("{status} {answer}"),
                Ok((status, answer)) if answer["code"] == "idempotency_request_running" => format!("{status} {answer}"),
                Ok((status, answer)) => return Err(format!("{status} {answer}")),
                Err(error) => error.to_string(),
            };
            if since.elapsed() > patience {
                return Err(format!("no answer within {patience:?}: {why}"));
            }
            tokio::time::sleep(POLL.saturating_mul(1 << again.min(10)).min(AGAIN_MAX)).await;
            again += 1;
        }
    }

    /// Reads the payment.
    pub async fn read(&self, id: &str) -> Value {
        self.ok(Method::GET, &format!("/payments/{id}"), Value::Null).await
    }

    /// Polls the payment until it satisfies `wanted`.
    pub async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let payment = self.read(id).await;
            if wanted(&payment) {
                return payment;
            }
            assert!(since.elapsed() < PATIENCE, "the payment did not become {what} in time: {payment:#}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Polls the payment until it has this status.
    pub async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, status, |payment| payment["status"] == status).await
    }

    /// All payments, newest first.
    pub async fn payments(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ok(Method::GET, &format!("/payments?limit={PAGE}{after}"), Value::Null).await;
            all.extend(page["payments"].as_array().unwrap().iter().cloned());
            match page["next_after"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return all,
            }
        }
    }

    /// All items of a list without a cursor, newest first; `items` is the name of the list's field.
    pub async fn list(&self, path: &str, items: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let page = self.ok(Method::GET, &format!("{path}?limit={PAGE}&offset={}", all.len()), Value::Null).await;
            let found = page[items].as_array().unwrap();
            all.extend(found.iter().cloned());
            if found.len() < PAGE {
                return all;
            }
        }
    }

    /// All ledger entries, oldest first.
    pub async fn entries(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("/ledger/entries?limit={PAGE}&after={after}");
            let page = self.ok(Method::GET, &path, Value::Null).await;
            all.extend(page["entries"].as_array().unwrap().iter().cloned());
            match page["next_after"].as_i64() {
                Some(next) => after = next,
                None => return all,
            }
        }
    }

    /// Names of the payment's events in the feed, in order of sequence. Panics if the sequence has a gap.
    pub async fn events(&self, id: &str) -> Vec<String> {
        let mut events: Vec<Value> = self.feed().await.into_iter().filter(|event| event["payment_id"] == id).collect();
        events.sort_by_key(|event| event["sequence"].as_i64().unwrap());
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence"], json!(index + 1), "a gap in {events:#?}");
        }
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// All events of the feed, oldest first.
    pub async fn feed(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ok(Method::GET, &format!("/api/v1/events?limit={PAGE}{after}"), Value::Null).await;
            all.extend(page["events"].as_array().unwrap().iter().cloned());
            match page["next_after"].as_str() {
                Some(next) if page["has_more"] == true => after = format!("&after={next}"),
                _ => return all,
            }
        }
    }

    /// All deliveries of the payment's webhooks, with their attempts.
    pub async fn webhook_log(&self, id: &str) -> Vec<Value> {
        let log = self.ok(Method::GET, &format!("/payments/{id}/webhooks"), Value::Null).await;
        log["deliveries"].as_array().unwrap().clone()
    }
}

/// Converts a decimal amount to base units.
pub fn units(decimal: &Value) -> i64 {
    let text = decimal.as_str().unwrap_or_else(|| panic!("{decimal} is not an amount"));
    text.parse::<Amount>().unwrap_or_else(|error| panic!("{decimal}: {error}")).units()
}

/// Converts base units to a decimal amount.
pub fn decimal(units: i64) -> String {
    Amount::from_units(units).to_string()
}
