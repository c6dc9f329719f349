//! PSP of the demonstration, with one merchant and a webhook endpoint at an inbox of the sandbox.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::http::Method;
use payferry_testkit::psp::Psp;
use payferry_testkit::service::Ready;
use payferry_testkit::wire::{Amount, MerchantId, Token};
use serde_json::{Value, json};

/// Longest wait for an expected state.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Shop {
    pub(super) psp: Psp,
    merchant: MerchantId,
}

impl Shop {
    /// Syncs a merchant and sets the webhook endpoint.
    pub(super) async fn set_up(ready: &Ready, inbox: &str) -> anyhow::Result<Self> {
        let psp = Psp::new(&ready.api_url, &ready.api_key)?;
        let merchant = psp.merchant("shop-1", "B-1").await?;
        let hook = format!("{}/sandbox/inbox/{inbox}", ready.api_url);
        psp.send(Method::PATCH, "/api/v1/set_webhook", &json!({"webhook_url": hook})).await?;
        Ok(Self { psp, merchant })
    }

    /// Initiates a payment. `chain` may be `best`.
    pub(super) async fn initiate(&self, amount: Amount, token: Token, chain: &str, secs: u32) -> anyhow::Result<Value> {
        let body = json!({
            "merchant_id": self.merchant.to_string(), "amount": amount.to_string(), "currency": token, "chain": chain,
            "expires_in": secs,
        });
        self.psp.post("/payments/initiate", &body).await
    }

    /// Lets a payer of the sandbox pay.
    pub(super) async fn pay(&self, id: &str, body: &Value) -> anyhow::Result<()> {
        self.psp.post(&format!("/sandbox/payments/{id}/pay"), body).await.map(|_| ())
    }

    /// Reads a payment until `wanted` accepts it. The error describes its last state.
    pub(super) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let since = Instant::now();
        loop {
            let payment: Value = self.psp.get(&format!("/payments/{id}")).await?;
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
}

/// State of a payment for the table.
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

pub(super) fn text(answer: &Value, pointer: &str) -> anyhow::Result<String> {
    let text = answer.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("the answer has no {pointer}: {answer}"))
}

pub(super) fn amount(answer: &Value, pointer: &str) -> anyhow::Result<Amount> {
    text(answer, pointer)?.parse().with_context(|| format!("{pointer} is no amount"))
}
