//! The PSP of the demonstration: knows the service by its HTTP interface alone.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use payferry_testkit::wire::{Amount, Chain, Token};
use reqwest::Method;
use serde_json::{Value, json};

use crate::sandbox::Ready;

/// How long something expected may take to happen.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);
/// Items of a page.
const PAGE: usize = 200;

/// A PSP with a merchant and a webhook endpoint at the sandbox's inbox.
pub(super) struct Psp {
    http: reqwest::Client,
    url: String,
    key: String,
    merchant_id: String,
}

impl Psp {
    /// Syncs a merchant and sets the webhook.
    pub(super) async fn set_up(ready: &Ready, inbox: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(35)).build()?;
        let (url, key) = (ready.api_url.clone(), ready.api_key.clone());
        let mut psp = Self { http, url, key, merchant_id: String::new() };
        let merchant = json!({
            "external_id": "shop-1", "name": "Ferry Shop", "email": "shop@example.com", "business_id": "B-1",
        });
        let synced = psp.post("/merchants/sync", json!({"merchants": [merchant]})).await?;
        psp.merchant_id = text(&synced, "/merchants/0/merchant_id")?;
        let hook = format!("{}/sandbox/inbox/{inbox}", psp.url);
        psp.call(Method::PATCH, "/api/v1/set_webhook", Some(json!({"webhook_url": hook}))).await?;
        Ok(psp)
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = response.status();
        let answer: Value = response.json().await.with_context(|| format!("{method} {path} answered {status}"))?;
        ensure!(status.is_success(), "{method} {path} answered {status}: {}", answer["detail"]);
        Ok(answer)
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Makes a payment.
    pub(super) async fn initiate(&self, amount: Amount, token: Token, chain: &str, secs: u32) -> anyhow::Result<Value> {
        let body = json!({
            "merchant_id": self.merchant_id, "amount": amount.to_string(), "currency": token, "chain": chain,
            "expires_in": secs,
        });
        self.post("/payments/initiate", body).await
    }

    /// Has a payer send money.
    pub(super) async fn pay(&self, id: &str, body: Value) -> anyhow::Result<()> {
        self.post(&format!("/sandbox/payments/{id}/pay"), body).await.map(|_| ())
    }

    /// Reads a payment until it is as wanted; an error says what it was instead.
    pub(super) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let since = Instant::now();
        loop {
            let payment = self.get(&format!("/payments/{id}")).await?;
            if wanted(&payment) {
                return Ok(payment);
            }
            if since.elapsed() > PATIENCE {
                let PaymentLine { status, labels, received } = PaymentLine::of(&payment);
                bail!("{id} stayed {status} {labels} with {received} received");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Every event of the feed, oldest first.
    pub(super) async fn feed(&self) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/api/v1/events?limit={PAGE}&after={after}")).await?;
            all.extend(page["events"].as_array().context("the feed has no `events`")?.iter().cloned());
            if !page["has_more"].as_bool().context("the feed has no `has_more`")? {
                return Ok(all);
            }
            after = text(&page, "/next_after")?;
        }
    }

    /// Every webhook that the inbox received.
    pub(super) async fn inbox(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/sandbox/inbox/{name}?limit=1000&after={after}")).await?;
            let webhooks = page["webhooks"].as_array().context("the inbox has no `webhooks`")?;
            if webhooks.is_empty() {
                return Ok(all);
            }
            all.extend(webhooks.iter().cloned());
            after = page["next"].as_u64().context("the inbox has no `next`")?;
        }
    }

    /// The token balance of an address, read from the chain.
    pub(super) async fn balance(&self, chain: Chain, token: &str, of: &str) -> anyhow::Result<Amount> {
        let data = format!("0x70a08231{:0>64}", of.trim_start_matches("0x"));
        let call =
            json!({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [{"to": token, "data": data}, "latest"]});
        let answer = self.post(&format!("/sandbox/rpc/{chain}"), call).await?;
        let word = answer["result"].as_str().and_then(|word| word.strip_prefix("0x"));
        let word = word.ok_or_else(|| anyhow!("eth_call answered {answer}"))?;
        let units = i64::from_str_radix(word.trim_start_matches('0'), 16).unwrap_or(0);
        Ok(Amount(units))
    }
}

/// How a payment stands, for people.
pub(super) struct PaymentLine {
    pub(super) status: String,
    pub(super) labels: String,
    pub(super) received: String,
}

impl PaymentLine {
    pub(super) fn of(payment: &Value) -> Self {
        let word = |key: &str| payment[key].as_str().unwrap_or("-").to_owned();
        let labels: Vec<&str> = payment["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let status = match payment["failure_reason"].as_str() {
            Some(reason) => format!("{} ({reason})", word("status")),
            None => word("status"),
        };
        Self { status, labels: labels.join(" "), received: word("amount_received") }
    }
}

/// A text in an answer.
pub(super) fn text(answer: &Value, pointer: &str) -> anyhow::Result<String> {
    let text = answer.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("the answer has no {pointer}: {answer}"))
}

/// A decimal amount in an answer.
pub(super) fn amount(answer: &Value, pointer: &str) -> anyhow::Result<Amount> {
    text(answer, pointer)?.parse().with_context(|| format!("{pointer} is no amount"))
}
