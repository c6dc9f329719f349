//! Money that a PSP sends on: refunds, payouts and withdrawals, and what they need: customers and a withdrawal wallet.

use alloy::primitives::Address;
use anyhow::{Context, ensure};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{OVERLOAD_PAUSE, Psp, problem};
use crate::client::{CallError, request};
use crate::wire::Chain;

/// Largest number of requests for one transfer, with a pause between two of them.
const ORDER_TRIES_MAX: u32 = 30;
/// Header of a key that makes a request repeatable.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Problem code of a repeated request whose first one is not answered yet.
const REQUEST_RUNNING: &str = "idempotency_request_running";
/// Documents that an individual needs.
const DOCUMENTS: [&str; 2] = ["proof_of_residential_address", "verification_document"];
/// Boundary of the form with the documents.
const BOUNDARY: &str = "payferry-load";

/// Reason why the request of an outbound transfer was not accepted. Its text is the kind of error, for counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderFailed {
    /// The service refused it, with this status and problem code.
    #[error("send: {0} {1}")]
    Refused(u16, String),
    /// There was no response.
    #[error("send: {0}")]
    Unanswered(CallError),
    /// The response has status 202 and a body that cannot be parsed.
    #[error("send: unreadable answer")]
    Unreadable,
}

impl OrderFailed {
    /// Returns true if the service may have accepted it.
    pub const fn may_be_made(&self) -> bool {
        !matches!(self, Self::Refused(..))
    }
}

impl Psp {
    /// Registers a customer. Returns the id.
    pub async fn customer(&self, email: &str) -> anyhow::Result<String> {
        let made = self.post("/api/v1/customers", &person(email)).await?;
        let id = made.pointer("/customers/0/id").and_then(Value::as_str);
        id.map(str::to_owned).context("the answer names no customer")
    }

    /// Gives a customer a wallet and documents, accepts the terms as the customer, and approves the customer as the
    /// sandbox's identity provider.
    pub async fn clear_customer(&self, id: &str, wallet: Address) -> anyhow::Result<()> {
        let details = json!({"customer_id": id, "wallet_address": wallet});
        self.send(Method::PATCH, "/api/v1/customers/payment-details", &details).await?;
        let link = self.post(&format!("/api/v1/customers/{id}/service-consent"), &json!({})).await?;
        let link: Url = link["url"].as_str().unwrap_or_default().parse().context("the consent has no link")?;
        let path = format!("{}?{}", link.path(), link.query().unwrap_or_default());
        self.send_form(Method::POST, &path, "application/x-www-form-urlencoded", "accept=yes".to_owned()).await?;
        let uploads = DOCUMENTS.iter().fold(part("customer_id", "", id), |uploads, name| {
            uploads + &part(name, "; filename=\"document.pdf\"", "%PDF-1.7\n")
        });
        let (kind, uploads) =
            (format!("multipart/form-data; boundary={BOUNDARY}"), format!("{uploads}--{BOUNDARY}--\r\n"));
        self.send_form(Method::PATCH, "/api/v1/customers/uploads", &kind, uploads).await?;
        let decided = self.post(&format!("/sandbox/customers/{id}/kyc"), &json!({"outcome": "approved"})).await?;
        ensure!(decided["kyc_status"] == "approved", "{id} is not approved: {}", decided["kyc_status"]);
        Ok(())
    }

    async fn send_form(&self, method: Method, path: &str, kind: &str, body: String) -> anyhow::Result<()> {
        let mut request = request(method, path, body.into());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(kind)?);
        let response = self.side.call(request).await?;
        // The path may contain a token.
        ensure!(response.status.is_success(), "a form of the customer is refused with {}", response.status);
        Ok(())
    }

    /// Sets the PSP's withdrawal wallet on a chain, as the operator of the sandbox.
    pub async fn set_withdrawal_wallet(&self, chain: Chain, address: Address) -> anyhow::Result<()> {
        let wallet = json!({"address": address, "chain": chain});
        self.post("/sandbox/withdrawal-wallet", &wallet).await.map(drop)
    }

    /// Requests an outbound transfer, and again with the same idempotency key while there is no answer, or the service is
    /// overloaded or unavailable. Returns its id.
    pub async fn order(&self, path: &str, body: &Value, key: &str) -> Result<String, OrderFailed> {
        #[derive(Deserialize)]
        struct Ordered {
            id: String,
        }
        let (body, key) = (Bytes::from(body.to_string()), HeaderValue::from_str(key).ok());
        let (mut may_be_made, mut failed) = (false, OrderFailed::Unreadable);
        for tries in 1..=ORDER_TRIES_MAX {
            let mut request = request(Method::POST, path, body.clone());
            request.headers_mut().extend(key.clone().map(|key| (IDEMPOTENCY_KEY, key)));
            match self.authorizations.call(request).await {
                Ok(response) if response.status == 202 => {
                    let ordered: Result<Ordered, _> = serde_json::from_slice(&response.body);
                    return ordered.map(|ordered| ordered.id).map_err(|_| OrderFailed::Unreadable);
                }
                Ok(response) => {
                    let (status, code) = (response.status.as_u16(), problem(&response).code);
                    let may_pass = [429, 503].contains(&status) || code == REQUEST_RUNNING;
                    failed = OrderFailed::Refused(status, code);
                    if !may_pass {
                        break;
                    }
                }
                Err(error) => {
                    may_be_made |= error.may_be_done();
                    failed = OrderFailed::Unanswered(error);
                }
            }
            if tries < ORDER_TRIES_MAX {
                tokio::time::sleep(OVERLOAD_PAUSE).await;
            }
        }
        // An earlier request may have been accepted.
        let is_unknown = may_be_made && matches!(failed, OrderFailed::Refused(429 | 503, _));
        Err(if is_unknown { OrderFailed::Unanswered(CallError::Broken) } else { failed })
    }
}

/// Returns one part of a form.
fn part(name: &str, more: &str, content: &str) -> String {
    format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{content}\r\n")
}

/// Returns the body that registers a customer with this address.
fn person(email: &str) -> Value {
    json!({
        "type": "individual", "country": "GBR", "currency": "GBP", "email": email, "first_name": "Ada",
        "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "QQ123456C",
        "residential_address": {
            "street_line_1": "12 St James's Square", "city": "London", "region": "London", "zip": "SW1Y 4JH",
            "country": "GBR",
        },
    })
}
