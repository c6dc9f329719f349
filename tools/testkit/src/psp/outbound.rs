//! Customers, and money that a PSP sends on: refunds, payouts and withdrawals, and the withdrawal wallet.

use std::sync::atomic::{AtomicU32, Ordering};

use alloy::primitives::Address;
use anyhow::{Context, ensure};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method};
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::{OVERLOAD_PAUSE, PAGE, Psp, problem};
use crate::client::{CallError, Client, request};
use crate::wire::Chain;

/// Number of customers who have accepted terms.
static OTHERS: AtomicU32 = AtomicU32::new(0);
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

/// Reason why the request of an outbound transfer, or of a customer, was not accepted. Its text is the kind of error, for
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderFailed {
    /// The service refused it, with this status and problem code.
    #[error("{0} {1}")]
    Refused(u16, String),
    /// There was no response.
    #[error("{0}")]
    Unanswered(CallError),
    /// The response accepts it and has a body that cannot be parsed.
    #[error("unreadable answer")]
    Unreadable,
}

impl OrderFailed {
    /// Returns true if the service may have accepted it.
    pub const fn may_be_made(&self) -> bool {
        !matches!(self, Self::Refused(..))
    }
}

impl Psp {
    /// Registers a customer, as [`Self::order`]. Returns the id.
    pub async fn customer(&self, email: &str, key: &str) -> Result<String, OrderFailed> {
        #[derive(Deserialize)]
        struct Created {
            customers: [WithId; 1],
        }
        let created: Result<Created, _> = self.post_keyed("/api/v1/customers", &person(email), key, 201).await;
        created.map(|Created { customers: [WithId { id }] }| id)
    }

    /// Returns the customers whose email address contains this text.
    pub async fn customers(&self, search: &str) -> anyhow::Result<Vec<ListedCustomer>> {
        #[derive(Deserialize)]
        struct Page {
            total: usize,
            customers: Vec<ListedCustomer>,
        }
        let mut found = Vec::new();
        loop {
            let path = format!("/api/v1/customers?search={search}&limit={PAGE}&offset={}", found.len());
            let Page { total, customers } = self.get(&path).await?;
            let is_last = customers.is_empty();
            found.extend(customers);
            if is_last || found.len() >= total {
                ensure!(found.len() == total, "GET /api/v1/customers lists {} of {total} customers", found.len());
                return Ok(found);
            }
        }
    }

    /// Gives a customer a wallet and documents, accepts the terms as the customer, and approves the customer as the
    /// sandbox's identity provider. It can be repeated.
    pub async fn clear_customer(&self, id: &str, wallet: Address) -> anyhow::Result<()> {
        let details = json!({"customer_id": id, "wallet_address": wallet});
        self.send(Method::PATCH, "/api/v1/customers/payment-details", &details).await?;
        let link = self.post(&format!("/api/v1/customers/{id}/service-consent"), &json!({})).await?;
        if !link["accepted_at"].is_string() {
            let link: Url = link["url"].as_str().unwrap_or_default().parse().context("the consent has no link")?;
            let path = format!("{}?{}", link.path(), link.query().unwrap_or_default());
            // Every customer has an address: the service limits the pages of each.
            let customer = self.side.as_another(OTHERS.fetch_add(1, Ordering::Relaxed));
            let form = "application/x-www-form-urlencoded";
            send_form(&customer, Method::POST, &path, form, "accept=yes".to_owned()).await?;
        }
        let uploads = DOCUMENTS.iter().fold(part("customer_id", "", id), |uploads, name| {
            uploads + &part(name, "; filename=\"document.pdf\"", "%PDF-1.7\n")
        });
        let (kind, uploads) =
            (format!("multipart/form-data; boundary={BOUNDARY}"), format!("{uploads}--{BOUNDARY}--\r\n"));
        send_form(&self.side, Method::PATCH, "/api/v1/customers/uploads", &kind, uploads).await?;
        let decided = self.post(&format!("/sandbox/customers/{id}/kyc"), &json!({"outcome": "approved"})).await?;
        ensure!(decided["kyc_status"] == "approved", "{id} is not approved: {}", decided["kyc_status"]);
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
        self.post_keyed(path, body, key, 202).await.map(|WithId { id }| id)
    }

    async fn post_keyed<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        key: &str,
        accepted: u16,
    ) -> Result<T, OrderFailed> {
        let (body, key) = (Bytes::from(body.to_string()), HeaderValue::from_str(key).ok());
        let (mut may_be_made, mut failed) = (false, OrderFailed::Unreadable);
        for tries in 1..=ORDER_TRIES_MAX {
            let mut request = request(Method::POST, path, body.clone());
            request.headers_mut().extend(key.clone().map(|key| (IDEMPOTENCY_KEY, key)));
            match self.authorizations.call(request).await {
                Ok(response) if response.status == accepted => {
                    return serde_json::from_slice(&response.body).map_err(|_| OrderFailed::Unreadable);
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

#[derive(Deserialize)]
struct WithId {
    id: String,
}

/// A customer in lists.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedCustomer {
    /// Its id.
    pub id: String,
    /// Email address.
    pub email: String,
    /// Status of the verification.
    pub kyc_status: String,
}

async fn send_form(client: &Client, method: Method, path: &str, kind: &str, body: String) -> anyhow::Result<()> {
    let mut request = request(method, path, body.into());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(kind)?);
    let response = client.call(request).await?;
    // The path may contain a token.
    ensure!(response.status.is_success(), "a form of the customer is refused with {}", response.status);
    Ok(())
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
