//! Customers of a PSP: registration, search, and everything that a payout to a customer needs.

use std::sync::atomic::{AtomicU32, Ordering};

use alloy::primitives::Address;
use anyhow::{Context, ensure};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::outbound::WithId;
use super::{OrderFailed, PAGE, Psp};
use crate::client::{Client, request};

/// Number of customers who have accepted terms.
static OTHERS: AtomicU32 = AtomicU32::new(0);
/// Documents that an individual needs.
const DOCUMENTS: [&str; 2] = ["proof_of_residential_address", "verification_document"];
/// Boundary of the form with the documents.
const BOUNDARY: &str = "payferry-load";

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
