//! A PSP with one merchant, as far as the measurements need one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::service::Service;
use payferry_testkit::client::{Client, request};

/// Payments of a page that is read back.
const PAGE: usize = 200;
/// Seconds until payments expire: longer than any measurement.
const EXPIRES_IN_SECS: u32 = 86_400;

/// The PSP. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Psp {
    client: Arc<Client>,
    merchant_id: Arc<str>,
    made: Arc<AtomicUsize>,
}

#[derive(Deserialize)]
struct Made {
    payment_id: String,
}

#[derive(Deserialize)]
struct Page {
    payments: Vec<Made>,
    next_after: Option<String>,
}

#[derive(Deserialize)]
struct Feed {
    events: Vec<Box<RawValue>>,
    next_after: Option<String>,
    has_more: bool,
}

#[derive(Deserialize)]
struct Named {
    event_id: String,
}

/// An event of the feed.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) event_id: String,
    /// As it is signed and sent.
    pub(super) body: Box<str>,
}

impl TryFrom<Box<RawValue>> for Announced {
    type Error = serde_json::Error;

    fn try_from(body: Box<RawValue>) -> Result<Self, Self::Error> {
        let Named { event_id } = serde_json::from_str(body.get())?;
        Ok(Self { event_id, body: body.into() })
    }
}

impl Psp {
    /// With up to so many connections.
    pub(super) async fn of(service: &Service, connections_max: usize) -> anyhow::Result<Self> {
        let client = Arc::new(service.client(connections_max)?);
        let merchant =
            json!({"external_id": "bench-1", "name": "Bench", "email": "bench@example.com", "business_id": "B-1"});
        let body = json!({"merchants": [merchant]}).to_string();
        let answer = client.post("/merchants/sync", body).await?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        let merchant_id = answer["merchants"][0]["merchant_id"].as_str().context("the merchant was not synced")?;
        Ok(Self { client, merchant_id: merchant_id.into(), made: Arc::default() })
    }

    /// One that speaks to what payments are compared with.
    pub(super) fn of_bound(service: &Service, connections_max: usize) -> anyhow::Result<Self> {
        let client = Client::new(&service.ready.api_url, connections_max, super::service::CALL_DEADLINE)?;
        let merchant_id = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3".into();
        Ok(Self { client: Arc::new(client), merchant_id, made: Arc::default() })
    }

    /// Makes a payment; answers its id, or what went wrong.
    pub(super) async fn initiate(self) -> Result<String, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let body = format!(
            r#"{{"merchant_id":"{}","amount":"10.00","currency":"USDC","chain":"base","expires_in":{EXPIRES_IN_SECS},"reference":"order-{number}","metadata":{{"order":{number}}}}}"#,
            self.merchant_id,
        );
        let answer = self.client.post("/payments/initiate", body).await.map_err(|error| error.to_string())?;
        if answer.status != StatusCode::CREATED {
            return Err(format!("status {}", answer.status.as_u16()));
        }
        let made: Made = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        Ok(made.payment_id)
    }

    /// Cancels a payment.
    pub(super) async fn cancel(self, id: String) -> Result<String, String> {
        let answer = self.client.post(&format!("/payments/{id}/cancel"), "{}").await.map_err(|e| e.to_string())?;
        if answer.status.is_success() { Ok(id) } else { Err(format!("status {}", answer.status.as_u16())) }
    }

    /// Has webhooks sent to `url`; answers the secret that signs them.
    pub(super) async fn set_webhook(&self, url: &str) -> anyhow::Result<String> {
        let body = json!({"webhook_url": url}).to_string();
        let answer = self.client.call(request(Method::PATCH, "/api/v1/set_webhook", body.into())).await?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        Ok(answer["signing_secret"].as_str().context("no secret was shown")?.to_owned())
    }

    /// All events of the feed.
    pub(super) async fn feed(&self) -> anyhow::Result<Vec<Announced>> {
        let (mut all, mut after): (Vec<Announced>, _) = (Vec::new(), String::new());
        loop {
            let answer = self.client.get(&format!("/api/v1/events?limit={PAGE}{after}")).await?;
            ensure!(answer.status.is_success(), "reading the feed answered {}", answer.status);
            let page: Feed = serde_json::from_slice(&answer.body)?;
            for event in page.events {
                all.push(event.try_into()?);
            }
            match page.next_after.filter(|_| page.has_more) {
                Some(last) => after = format!("&after={last}"),
                None => return Ok(all),
            }
        }
    }

    /// What is wrong if all of these are to be live and waiting for money.
    pub(super) async fn audit_live(&self, made: &[String]) -> anyhow::Result<Vec<String>> {
        let pending = self.read_pages("&status=pending").await?;
        let lost = made.iter().filter(|id| !pending.contains(*id)).count();
        Ok(if lost == 0 { Vec::new() } else { vec![format!("{lost} payments are lost or not pending any more")] })
    }

    /// The ids of all payments that there are, read back page by page.
    async fn read_back(&self) -> anyhow::Result<HashSet<String>> {
        self.read_pages("").await
    }

    async fn read_pages(&self, filter: &str) -> anyhow::Result<HashSet<String>> {
        let (mut all, mut after) = (HashSet::new(), None::<String>);
        loop {
            let after_query = after.as_ref().map(|after| format!("&after={after}")).unwrap_or_default();
            let answer = self.client.get(&format!("/payments?limit={PAGE}{filter}{after_query}")).await?;
            ensure!(answer.status.is_success(), "reading payments back answered {}", answer.status);
            let page: Page = serde_json::from_slice(&answer.body)?;
            all.extend(page.payments.into_iter().map(|made| made.payment_id));
            after = page.next_after;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// What is wrong with the payments that are there, if these were acknowledged: empty if nothing is. `unknown` more
    /// may be there: requests whose answers did not arrive.
    pub(super) async fn audit(&self, acknowledged: &[String], unknown: usize) -> anyhow::Result<Vec<String>> {
        let there = self.read_back().await?;
        let distinct: HashSet<&String> = acknowledged.iter().collect();
        let lost = distinct.iter().filter(|id| !there.contains(**id)).count();
        let twice = acknowledged.len() - distinct.len();
        let more = (there.len() + lost).saturating_sub(distinct.len() + unknown);
        let wrong = [
            (lost, "payments that were acknowledged are lost"),
            (twice, "payments were acknowledged under an id that was given before"),
            (more, "payments are there that nobody asked for"),
        ];
        Ok(wrong.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect())
    }
}
