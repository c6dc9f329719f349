//! PSP with one merchant that initiates equal payments as fast as possible, and the check of what the service
//! acknowledged.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use axum::http::{Method, StatusCode};
use payferry_testkit::client::Client;
use payferry_testkit::psp::{InitiateFailed, OVERLOAD_PAUSE, Psp};
use payferry_testkit::service::{CALL_DEADLINE, Service};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// Seconds until the payments expire: longer than any measurement.
const EXPIRES_IN_SECS: u32 = 86_400;
/// Merchant id in requests to the bound.
const BOUND_MERCHANT: &str = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3";

/// The PSP. Clones share its connections.
#[derive(Debug, Clone)]
pub(super) struct BenchPsp {
    psp: Option<Psp>,
    client: Arc<Client>,
    merchant_id: Arc<str>,
    initiated: Arc<AtomicUsize>,
}

#[derive(Deserialize)]
struct PaymentId {
    payment_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct FeedEvent {
    pub(super) event_id: String,
    /// The event as it is signed and sent.
    #[serde(skip)]
    pub(super) body: String,
}

impl BenchPsp {
    /// Makes a PSP with up to `connections_max` connections for initiations.
    pub(super) async fn of(service: &Service, connections_max: usize) -> anyhow::Result<Self> {
        let psp = Psp::new(&service.ready().api_url, &service.ready().api_key)?;
        let merchant_id = psp.merchant("bench-1", "B-1").await?.to_string().into();
        let client = Arc::new(service.client(connections_max)?);
        Ok(Self { psp: Some(psp), client, merchant_id, initiated: Arc::default() })
    }

    pub(super) fn of_bound(bound: &Service, connections_max: usize) -> anyhow::Result<Self> {
        let client = Arc::new(Client::new(&bound.ready().api_url, connections_max, CALL_DEADLINE)?);
        Ok(Self { psp: None, client, merchant_id: BOUND_MERCHANT.into(), initiated: Arc::default() })
    }

    fn psp(&self) -> anyhow::Result<&Psp> {
        self.psp.as_ref().context("the bound has no such route")
    }

    /// Initiates a payment. Returns its id, or the kind of error.
    pub(super) async fn initiate(self) -> Result<String, String> {
        self.try_to_initiate().await.map_err(|error| error.to_string())
    }

    /// Like [`Self::initiate`], and repeats it as long as the service is overloaded.
    pub(super) async fn initiate_patiently(self) -> Result<String, String> {
        loop {
            match self.try_to_initiate().await {
                Err(error) if error.is_overloaded() => tokio::time::sleep(OVERLOAD_PAUSE).await,
                result => return result.map_err(|error| error.to_string()),
            }
        }
    }

    async fn try_to_initiate(&self) -> Result<String, InitiateFailed> {
        let number = self.initiated.fetch_add(1, Ordering::Relaxed);
        let body = format!(
            r#"{{"merchant_id":"{}","amount":"10.00","currency":"USDC","chain":"base","expires_in":{EXPIRES_IN_SECS},"reference":"order-{number}","metadata":{{"order":{number}}}}}"#,
            self.merchant_id,
        );
        let response = self.client.post("/payments/initiate", body).await.map_err(InitiateFailed::Unanswered)?;
        if response.status != StatusCode::CREATED {
            return Err(InitiateFailed::refused(&response));
        }
        let payment: PaymentId = serde_json::from_slice(&response.body).map_err(|_| InitiateFailed::Unreadable)?;
        Ok(payment.payment_id)
    }

    /// Cancels a payment. Returns its id, or the kind of error.
    pub(super) async fn cancel(self, id: String) -> Result<String, String> {
        let response = self.client.post(&format!("/payments/{id}/cancel"), "{}").await;
        let response = response.map_err(|error| error.to_string())?;
        if response.status.is_success() { Ok(id) } else { Err(format!("status {}", response.status.as_u16())) }
    }

    /// Sets the webhook endpoint. Returns the secret that signs its webhooks.
    pub(super) async fn set_webhook(&self, url: &str) -> anyhow::Result<String> {
        let set = self.psp()?.send(Method::PATCH, "/api/v1/set_webhook", &json!({"webhook_url": url})).await?;
        Ok(set["signing_secret"].as_str().context("the answer has no signing secret")?.to_owned())
    }

    pub(super) async fn feed(&self) -> anyhow::Result<Vec<FeedEvent>> {
        let event = |body: Box<RawValue>| {
            let event: FeedEvent = serde_json::from_str(body.get())?;
            Ok(FeedEvent { body: body.get().to_owned(), ..event })
        };
        self.psp()?.events().await?.into_iter().map(event).collect()
    }

    /// Returns what is wrong if all of these payments must be pending.
    pub(super) async fn audit_live(&self, made: &[String]) -> anyhow::Result<Vec<String>> {
        let pending = self.read_back("status=pending").await?;
        let lost = made.iter().filter(|id| !pending.contains(*id)).count();
        Ok(if lost == 0 { Vec::new() } else { vec![format!("{lost} payments are lost or not pending any more")] })
    }

    async fn read_back(&self, filter: &str) -> anyhow::Result<HashSet<String>> {
        let mut ids = HashSet::new();
        let each = |payment: PaymentId| {
            ids.insert(payment.payment_id);
        };
        self.psp()?.payments(filter, each).await?;
        Ok(ids)
    }

    /// Reads all payments back. Returns what is wrong if these were acknowledged. `unknown` more may exist: requests
    /// without a response.
    pub(super) async fn audit(&self, acknowledged: &[String], unknown: usize) -> anyhow::Result<Vec<String>> {
        let there = self.read_back("").await?;
        let distinct: HashSet<&String> = acknowledged.iter().collect();
        let lost = distinct.iter().filter(|id| !there.contains(**id)).count();
        let twice = acknowledged.len() - distinct.len();
        let more = (there.len() + lost).saturating_sub(distinct.len() + unknown);
        Ok(counted([
            (lost, "acknowledged payments are lost"),
            (twice, "payments were acknowledged with the id of another payment"),
            (more, "payments exist that were not requested"),
        ]))
    }
}

/// Returns the counts above zero, in words.
pub(super) fn counted<const N: usize>(counts: [(usize, &str); N]) -> Vec<String> {
    counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}
