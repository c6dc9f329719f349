//! A whole sandbox in the test's process, and what a PSP and a payer do with it. Everything goes over real HTTP.

use std::time::{Duration, Instant};

use payferry_domain::{Chain, Token};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::receiver::Receiver;

/// How long a story waits for what it expects. Generous: the machines are slow and noisy, the stories are not.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A PSP's view of one sandbox, wherever it runs.
pub struct World {
    pub url: String,
    pub api_key: String,
    pub http: reqwest::Client,
    pub merchant_id: String,
    /// What `GET /sandbox` says: contracts and tokens of each chain.
    pub facts: Value,
}

impl World {
    /// Connects to a sandbox, with a merchant and `receiver` as the webhook endpoint.
    pub async fn connect(url: &str, api_key: &str, receiver: &Receiver) -> Self {
        payferry_actors::tls::install();
        let mut world = Self {
            url: url.to_owned(),
            api_key: api_key.to_owned(),
            http: reqwest::Client::new(),
            merchant_id: String::new(),
            facts: Value::Null,
        };
        world.facts = world.ok(Method::GET, "/sandbox", Value::Null).await;
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

    /// A request with the PSP's key, of a sandbox that may be gone.
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

    /// Sends a real transfer to the payment's wallet; answers the transaction's hash.
    pub async fn pay(&self, id: &str, body: Value) -> String {
        let paid = self.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), body).await;
        paid["tx_hash"].as_str().unwrap().to_owned()
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

    /// Mines blocks.
    pub async fn mine(&self, chain: Chain, blocks: u64) {
        self.ok(Method::POST, &format!("/sandbox/chains/{chain}/mine"), json!({"blocks": blocks})).await;
    }

    /// Moves the clock and the chains on.
    pub async fn advance(&self, seconds: i64) {
        self.ok(Method::POST, "/sandbox/clock/advance", json!({"seconds": seconds})).await;
    }

    /// An address that `GET /sandbox` names for a chain.
    fn fact(&self, chain: Chain, pointer: &str) -> String {
        let fact = self.facts["chains"][chain.as_str()].pointer(pointer).and_then(Value::as_str);
        fact.unwrap_or_else(|| panic!("no {pointer} of {chain} in {:#}", self.facts)).to_owned()
    }

    /// The token balance of an address, base units, read on-chain.
    async fn balance(&self, chain: Chain, token: Token, of: &str) -> i64 {
        let contract = self.fact(chain, &format!("/tokens/{token}"));
        let data = format!("0x70a08231{:0>64}", of.trim_start_matches("0x"));
        let params = json!([{"to": contract, "data": data}, "latest"]);
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": params});
        let url = format!("{}/sandbox/rpc/{chain}", self.url);
        let answer: Value = self.http.post(url).json(&call).send().await.unwrap().json().await.unwrap();
        let word = answer["result"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
        i64::from_str_radix(&word[word.len() - 15..], 16).unwrap()
    }

    /// What the PSP's vault and the treasury hold, base units.
    pub async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        let (vault, treasury) = (self.fact(chain, "/psp_vault"), self.fact(chain, "/treasury"));
        (self.balance(chain, token, &vault).await, self.balance(chain, token, &treasury).await)
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
