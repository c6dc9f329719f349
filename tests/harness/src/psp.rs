//! PSP client of the tests: the testkit's client with one merchant. It panics with the response if a request fails.

use std::time::{Duration, Instant};

use payferry_domain::{Chain, Token};
use payferry_testkit::client::{CallError, request};
use payferry_testkit::metrics::metric;
use payferry_testkit::movements::{VaultAmounts, holdings};
use payferry_testkit::psp::{PAGE, Psp as Client};
use payferry_testkit::rpc::Rpc;
use payferry_testkit::wire::Amount;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::{eventually, expect, install_tls};

const POLL: Duration = Duration::from_millis(50);
/// Longest pause before a request is sent again. Each pause is twice the one before, from [`POLL`] on.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// One PSP, with one merchant. Clones share connections.
#[derive(Clone, Debug)]
pub struct Psp {
    /// URL of the service.
    pub url: String,
    /// The PSP's key.
    pub api_key: String,
    /// The merchant of [`Psp::connect`].
    pub merchant_id: String,
    client: Client,
}

impl Psp {
    /// Makes a client without a merchant. The operator's listener takes its own token as the key.
    pub fn new(url: &str, api_key: &str) -> Self {
        // For tests that also use an HTTP client of their own.
        install_tls();
        let client = Client::new(url, api_key).unwrap();
        Self { url: url.to_owned(), api_key: api_key.to_owned(), merchant_id: String::new(), client }
    }

    /// Makes a client with a merchant, and `receiver` as the webhook endpoint.
    pub async fn connect(url: &str, api_key: &str, receiver: &Receiver) -> Self {
        let mut psp = Self::new(url, api_key);
        psp.merchant_id = psp.merchant("m-1").await;
        psp.set_webhook(receiver).await;
        psp
    }

    /// Makes or finds a merchant. Returns its id.
    pub async fn merchant(&self, external_id: &str) -> String {
        self.client.merchant(external_id, "B-1").await.unwrap().to_string()
    }

    /// Makes `receiver` the webhook endpoint. It learns the secret if this is the first endpoint.
    pub async fn set_webhook(&self, receiver: &Receiver) {
        let set = self.ok(Method::PATCH, "/api/v1/set_webhook", json!({"webhook_url": receiver.url()})).await;
        if let Some(secret) = set["signing_secret"].as_str() {
            receiver.verify_with(secret);
        }
    }

    /// Sends a request to a service that may be gone. Null sends no body.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        idempotency_key: Option<&str>,
    ) -> Result<(StatusCode, Value), CallError> {
        let json = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = request(method, path, json.into());
        if let Some(key) = idempotency_key {
            request.headers_mut().insert("idempotency-key", HeaderValue::from_str(key).unwrap());
        }
        let response = self.client.side().call(request).await?;
        let text = || Value::String(String::from_utf8_lossy(&response.body).into_owned());
        Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_else(|_| text())))
    }

    /// Sends a request that must have a response.
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

    /// Returns the body of an initiation. `chain` may be `best`.
    pub fn initiation(&self, amount: &str, token: Token, chain: &str) -> Value {
        json!({"merchant_id": self.merchant_id, "amount": amount, "currency": token.as_str(), "chain": chain})
    }

    /// Initiates a payment. Returns the response.
    pub async fn initiate(&self, amount: &str, token: Token, chain: &str) -> Value {
        self.ok(Method::POST, "/payments/initiate", self.initiation(amount, token, chain)).await
    }

    /// Initiates a payment. Returns its id.
    pub async fn payment(&self, amount: &str, token: Token, chain: Chain) -> String {
        let made = self.initiate(amount, token, chain.as_str()).await;
        assert_eq!(made["status"], "pending", "{made:#}");
        made["payment_id"].as_str().unwrap().to_owned()
    }

    /// Accepts the terms of service as the customer, on their page.
    pub async fn accept_terms(&self, customer_id: &str) {
        let path = format!("/api/v1/customers/{customer_id}/service-consent");
        let link = self.ok(Method::POST, &path, Value::Null).await;
        let form = reqwest::Client::new().post(link["url"].as_str().unwrap()).body("accept=yes");
        let page = form.header(CONTENT_TYPE, "application/x-www-form-urlencoded").send().await.unwrap();
        assert!(page.status().is_success(), "the terms could not be accepted: {}", page.status());
    }

    /// Posts with an idempotency key until it succeeds, through kills and outages of the service. Returns the response,
    /// and the number of repetitions. A response that forbids a repetition is the error.
    pub async fn post_until_accepted(
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
                // Overloaded or unavailable, or the first request is still running.
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

    /// Reads a payment.
    pub async fn read(&self, id: &str) -> Value {
        self.ok(Method::GET, &format!("/payments/{id}"), Value::Null).await
    }

    /// Reads a payment until `wanted` accepts it.
    pub async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(format!("the payment is {what}"), async || expect(self.read(id).await, &wanted)).await
    }

    /// Reads a payment until it has this status.
    pub async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, status, |payment| payment["status"] == status).await
    }

    /// Returns the balances of the PSP's vault and of the treasury on a chain of a sandbox, in base units.
    pub async fn sandbox_holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        let (chain, token) = (chain.as_str().parse().unwrap(), token.as_str().parse().unwrap());
        let info = &self.client.sandbox().await.unwrap().chains[&chain];
        let (_, held) = holdings(&Rpc::of_sandbox(self.client.side(), chain), info).await.unwrap();
        let VaultAmounts { vault, treasury } = held[&token];
        (vault.units(), treasury.units())
    }

    /// Returns a metric, summed over its labels, for a client of the operator's listener.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(self.client.side(), name).await.unwrap().unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// Returns every payment, newest first.
    pub async fn payments(&self) -> Vec<Value> {
        let mut all = Vec::new();
        self.client.payments("", |payment| all.push(payment)).await.unwrap();
        all
    }

    /// Returns every item of a list without a cursor, newest first. `items` is the name of the items.
    pub async fn list(&self, path: &str, items: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let read = |page: Value| {
            let found = page[items].as_array().unwrap();
            all.extend(found.iter().cloned());
            (found.len() == PAGE).then(|| format!("&offset={}", all.len()))
        };
        self.client.pages(&format!("{path}?limit={PAGE}"), read).await.unwrap();
        all
    }

    /// Returns every entry of the ledger, oldest first.
    pub async fn entries(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let read = |page: Value| {
            all.extend(page["entries"].as_array().unwrap().iter().cloned());
            page["next_after"].as_i64().map(|next| format!("&after={next}"))
        };
        self.client.pages(&format!("/ledger/entries?limit={PAGE}"), read).await.unwrap();
        all
    }

    /// Returns the names of the payment's events in the feed, in order of sequence. Panics if the sequence has a gap.
    pub async fn events(&self, id: &str) -> Vec<String> {
        let mut events: Vec<Value> = self.feed().await.into_iter().filter(|event| event["payment_id"] == id).collect();
        events.sort_by_key(|event| event["sequence"].as_i64().unwrap());
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence"], json!(index + 1), "a gap in {events:#?}");
        }
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns every event of the feed, oldest first.
    pub async fn feed(&self) -> Vec<Value> {
        let events = self.client.events().await.unwrap();
        events.iter().map(|event| serde_json::from_str(event.get()).unwrap()).collect()
    }
}

/// Returns the body of a request for a customer, a person with only the required data.
pub fn person(email: &str) -> Value {
    json!({
        "type": "individual", "country": "GBR", "currency": "GBP", "email": email, "first_name": "Ada",
        "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "QQ123456C",
        "residential_address": {
            "street_line_1": "12 St James's Square", "city": "London", "region": "London", "zip": "SW1Y 4JH",
            "country": "GBR",
        },
    })
}

/// Converts a decimal amount to base units.
pub fn units(decimal: &Value) -> i64 {
    let text = decimal.as_str().unwrap_or_else(|| panic!("{decimal} is not an amount"));
    text.parse::<Amount>().unwrap_or_else(|error| panic!("{error}")).units()
}

/// Converts base units to a decimal amount.
pub fn decimal(units: i64) -> String {
    Amount(units).to_string()
}
