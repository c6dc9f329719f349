//! Client of a PSP: the HTTP interface of the service, as far as the tools call it.

mod customers;
mod outbound;

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, bail, ensure};
use axum::http::Method;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{CallError, Client, Response, request};
use crate::ledger::{Balance, LedgerEntry};
use crate::payers::Persistence;
use crate::sandbox::SandboxInfo;
use crate::wire::{Amount, Chain, MerchantId, PaymentId, Token};

pub use customers::ListedCustomer;
pub use outbound::OrderFailed;

/// Default number of connections for initiations. Each carries one request at a time; further requests wait for one.
pub const CONNECTIONS_MAX: usize = 256;
/// Timeout of an initiation.
pub const INITIATE_DEADLINE: Duration = Duration::from_secs(10);
/// Timeout of any other request. The sandbox's clock needs some time for a large step.
const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// Connections for everything else: reads, transfers, blocks.
const SIDE_CONNECTIONS_MAX: usize = 64;
/// Connections for authorizations and outbound transfers. The service accepts each in a few milliseconds.
const AUTHORIZATION_CONNECTIONS_MAX: usize = 64;
/// Submissions of an authorization while the service is overloaded.
const AUTHORIZATION_TRIES_MAX: u32 = 30;
/// Pause before a request that the overloaded service has refused is repeated.
pub const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);
/// Connections for sampled payments: one for each payment that is polled at once, so that none of them delays another
/// one or a payer.
pub const SAMPLE_CONNECTIONS_MAX: usize = 64;
/// Items of a page: the largest page of the interface.
pub const PAGE: usize = 200;
/// Largest number of pages of one list. More pages mean that the list has no end.
const PAGES_MAX: usize = 100_000;

/// Smallest amount of [`PaymentTerms::nth`], the difference between two amounts, and the number of different amounts.
const AMOUNT_LEAST: Amount = Amount::from_tokens(5);
pub(crate) const AMOUNT_STEP_UNITS: i64 = 1_000;
const AMOUNT_STEPS: u32 = 100_000;
/// Upper bound of the amounts of [`PaymentTerms::nth`], exclusive.
pub const AMOUNTS_BELOW: Amount = AMOUNT_LEAST.saturating_add(Amount(AMOUNT_STEP_UNITS * AMOUNT_STEPS as i64));
/// Default time until a payment expires, in seconds: longer than any run.
pub const EXPIRES_SECS: u32 = 3_600;

/// Terms of a request to initiate a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaymentTerms {
    /// The chain.
    pub chain: Chain,
    /// The token.
    pub token: Token,
    /// The amount due.
    pub amount: Amount,
    /// Time until the payment expires, in seconds.
    pub expires_secs: u32,
}

impl PaymentTerms {
    /// Returns the terms of payment `number`: spread over all chains and tokens, each with a different amount, so that
    /// a mix-up of two payments shows.
    pub fn nth(number: u32) -> Self {
        let of = |count: usize, every: usize| (number as usize / every) % count;
        let steps = i64::from(number % AMOUNT_STEPS);
        Self {
            chain: Chain::ALL[of(Chain::ALL.len(), 1)],
            token: Token::ALL[of(Token::ALL.len(), Chain::ALL.len())],
            amount: AMOUNT_LEAST.saturating_add(Amount(steps * AMOUNT_STEP_UNITS)),
            expires_secs: EXPIRES_SECS,
        }
    }
}

/// Client with the key of a PSP. Clones share connections.
#[derive(Debug, Clone)]
pub struct Psp {
    initiations: Arc<Client>,
    side: Arc<Client>,
    authorizations: Arc<Client>,
    sample: Arc<Client>,
}

/// Response to an initiation.
#[derive(Debug, Clone, Deserialize)]
pub struct Initiated {
    /// Id of the payment.
    pub payment_id: PaymentId,
    /// Address that the payer pays to.
    pub intermediary_wallet: Address,
    /// Ways to pay it. Parsed only for payers that sign.
    pub payment_methods: Option<Box<RawValue>>,
}

/// Reason why an initiation returned no payment. Its text is the kind of error, for counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitiateFailed {
    /// The service refused it, with this status and problem code.
    #[error("initiate: {0} {1}")]
    Refused(u16, String),
    /// There was no response.
    #[error("initiate: {0}")]
    Unanswered(CallError),
    /// The response has status 201 and a body that cannot be parsed.
    #[error("initiate: unreadable answer")]
    Unreadable,
}

/// Problem codes of an authorization that the service accepted before: it is being collected, or has paid already.
const ACCEPTED_BEFORE: [&str; 3] = ["authorization_in_progress", "authorization_used", "payment_not_pending"];
/// Problem code of a refusal because of too much load.
const OVERLOADED: &str = "overloaded";

impl InitiateFailed {
    /// The refusal in a response.
    pub fn refused(response: &Response) -> Self {
        Self::Refused(response.status.as_u16(), problem(response).code)
    }

    /// Returns true if the service refused it because of too much load.
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Refused(_, code) if code == OVERLOADED)
    }

    /// Returns true if it waited for as long as a request may.
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Unanswered(CallError::TimedOut | CallError::NotSent))
    }

    /// Returns true if the service may have made the payment.
    pub const fn may_be_made(&self) -> bool {
        match self {
            Self::Refused(..) => false,
            Self::Unanswered(error) => error.may_be_done(),
            Self::Unreadable => true,
        }
    }
}

/// Webhook endpoint of a PSP.
#[derive(Debug, Clone, Deserialize)]
pub struct WebhookEndpoint {
    /// Its URL; null if the PSP never set one.
    pub webhook_url: Option<String>,
    /// Names of the events that it gets.
    pub events: Vec<String>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
}

impl Psp {
    /// Makes a client of the service at `url`.
    pub fn new(url: &str, key: &str) -> anyhow::Result<Self> {
        Self::with_connections(url, key, CONNECTIONS_MAX)
    }

    /// Makes a client with up to `connections_max` initiations at once.
    pub fn with_connections(url: &str, key: &str, connections_max: usize) -> anyhow::Result<Self> {
        let client = |connections_max: usize, deadline: Duration| {
            anyhow::Ok(Arc::new(Client::new(url, connections_max, deadline)?.bearer(key)?))
        };
        Ok(Self {
            initiations: client(connections_max, INITIATE_DEADLINE)?,
            side: client(SIDE_CONNECTIONS_MAX, CALL_DEADLINE)?,
            authorizations: client(AUTHORIZATION_CONNECTIONS_MAX, CALL_DEADLINE)?,
            sample: client(SAMPLE_CONNECTIONS_MAX, CALL_DEADLINE)?,
        })
    }

    /// Returns the client for everything but initiations.
    pub fn side(&self) -> &Arc<Client> {
        &self.side
    }

    /// Reads a resource. Retries while the service is unavailable.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        read(&self.side, path).await
    }

    /// Posts a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, path, body).await
    }

    /// Sends a JSON body, once.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = request(method.clone(), path, body.to_string().into());
        let response = self.side.call(request).await.with_context(|| format!("{method} {path}"))?;
        parsed(&response, &method, path)
    }

    /// Returns the sandbox's description of itself. Fails with a clear message if the service is not a sandbox, or not
    /// one of this key.
    pub async fn sandbox(&self) -> anyhow::Result<SandboxInfo> {
        let response = self.side.get("/sandbox").await.context("the service cannot be reached")?;
        match response.status.as_u16() {
            200 => serde_json::from_slice(&response.body).context("GET /sandbox cannot be read"),
            401 | 403 => bail!("the service does not take the key: {}", problem(&response).detail),
            404 => {
                bail!("it is no sandbox: it has no /sandbox and no /sandbox/rpc, and payments here are simulated money")
            }
            status => bail!("GET /sandbox answered {status}"),
        }
    }

    /// Makes or finds a merchant.
    pub async fn merchant(&self, external_id: &str, business_id: &str) -> anyhow::Result<MerchantId> {
        let merchant = json!({
            "external_id": external_id, "name": "Test shop", "email": "shop@example.com", "business_id": business_id,
        });
        let synced = self.post("/merchants/sync", &json!({"merchants": [merchant]})).await?;
        let id = synced.pointer("/merchants/0/merchant_id").and_then(Value::as_str);
        id.context("the answer names no merchant")?.parse().context("the merchant's id cannot be read")
    }

    /// Returns the webhook endpoint.
    pub async fn endpoint(&self) -> anyhow::Result<WebhookEndpoint> {
        self.get("/api/v1/webhook").await
    }

    /// Makes `url` the webhook endpoint. Returns the secret that signs its webhooks. `before` is the endpoint so far.
    pub async fn receive_at(&self, url: &str, before: &WebhookEndpoint) -> anyhow::Result<String> {
        let all = ["*".to_owned()];
        let secret = |answer: &Value| answer["signing_secret"].as_str().map(str::to_owned);
        if before.webhook_url.is_none()
            && let Some(secret) = secret(&self.set_endpoint(url, &all).await?)
        {
            return Ok(secret);
        }
        // The service showed the secret once, to another client. Rotate it; the old secret signs beside the new one for
        // a day. Rotate before any webhook goes to `url`, because earlier webhooks are signed by the old secret alone.
        let rotated = self.post("/api/v1/webhook/rotate", &json!({})).await?;
        self.set_endpoint(url, &all).await?;
        secret(&rotated).context("the answer has no signing secret")
    }

    /// Sets the webhook endpoint and its events.
    pub async fn set_endpoint(&self, url: &str, events: &[String]) -> anyhow::Result<Value> {
        self.send(Method::PATCH, "/api/v1/set_webhook", &json!({"webhook_url": url, "events": events})).await
    }

    /// Initiates a payment. Sends the request once. Also returns when it got a connection ([`Client::call_timed`]).
    pub async fn initiate(
        &self,
        merchant: MerchantId,
        reference: &str,
        terms: &PaymentTerms,
    ) -> (Option<Instant>, Result<Initiated, InitiateFailed>) {
        let PaymentTerms { chain, token, amount, expires_secs } = terms;
        // Formatted by hand: no value needs escaping.
        let body = format!(
            r#"{{"merchant_id":"{merchant}","amount":"{amount}","currency":"{token}","chain":"{chain}","expires_in":{expires_secs},"reference":"{reference}"}}"#
        );
        let request = request(Method::POST, "/payments/initiate", body.into());
        let (begun, response) = self.initiations.call_timed(request).await;
        let initiated =
            response.map_err(InitiateFailed::Unanswered).and_then(|response| match response.status.as_u16() {
                201 => serde_json::from_slice(&response.body).map_err(|_| InitiateFailed::Unreadable),
                _ => Err(InitiateFailed::refused(&response)),
            });
        (begun, initiated)
    }

    /// Submits a payer's authorization, and again while the service is overloaded. Returns the kind of error if the
    /// service does not accept it.
    /// [`Persistence::ThroughOutages`] also submits it again if there is no answer or the service is unavailable; it may
    /// have accepted the first one then, and say so.
    pub async fn authorize(&self, id: PaymentId, body: String, persistence: Persistence) -> Result<(), String> {
        let (path, body) = (format!("/payments/{id}/authorization"), Bytes::from(body));
        let is_persistent = persistence == Persistence::ThroughOutages;
        let mut may_be_accepted = false;
        for tries in 1.. {
            let response = self.authorizations.call(request(Method::POST, &path, body.clone())).await;
            let (failed, may_pass) = match response {
                Ok(response) => {
                    let (status, code) = (response.status.as_u16(), problem(&response).code);
                    if status == 202 || (may_be_accepted && ACCEPTED_BEFORE.contains(&code.as_str())) {
                        break;
                    }
                    let may_pass = code == OVERLOADED || (is_persistent && status == 503);
                    (format!("{status} {code}"), may_pass)
                }
                Err(error) => {
                    may_be_accepted |= error.may_be_done();
                    (error.to_string(), is_persistent)
                }
            };
            if !may_pass || tries == AUTHORIZATION_TRIES_MAX {
                return Err(failed);
            }
            tokio::time::sleep(OVERLOAD_PAUSE).await;
        }
        Ok(())
    }

    /// Reads all items of a list with cursors, newest first, page by page.
    pub async fn list<T: DeserializeOwned>(&self, name: &str, mut each: impl FnMut(T)) -> anyhow::Result<()> {
        let (mut items, mut invalid) = (Vec::new(), false);
        self.pages(&format!("/{name}?limit={PAGE}"), |mut page: Value| {
            match serde_json::from_value::<Vec<T>>(page[name].take()) {
                Ok(page) => items.extend(page),
                Err(_) => invalid = true,
            }
            page["next_cursor"].as_str().filter(|_| !invalid).map(|next| format!("&cursor={next}"))
        })
        .await?;
        ensure!(!invalid, "GET /{name} has no valid `{name}`");
        items.into_iter().for_each(&mut each);
        Ok(())
    }

    /// Reads all pages of a list. `read` takes the items of a page and returns the query parameters of the next one.
    pub async fn pages<P: DeserializeOwned>(
        &self,
        path: &str,
        mut read: impl FnMut(P) -> Option<String>,
    ) -> anyhow::Result<()> {
        let mut after = String::new();
        for _ in 0..PAGES_MAX {
            match read(self.get(&format!("{path}{after}")).await?) {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
        bail!("the list {path} does not end")
    }

    /// Reads all payments that match `filter` (query parameters such as `merchant_id=…`), newest first, page by page.
    pub async fn payments<T: DeserializeOwned>(&self, filter: &str, mut each: impl FnMut(T)) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Page<T> {
            payments: Vec<T>,
            next_after: Option<String>,
        }
        self.pages(&format!("/payments?{filter}&limit={PAGE}"), |page: Page<T>| {
            page.payments.into_iter().for_each(&mut each);
            page.next_after.map(|next| format!("&after={next}"))
        })
        .await
    }

    /// Reads all events of the feed, oldest first. Each is the body of its webhook, byte for byte.
    pub async fn events(&self) -> anyhow::Result<Vec<Box<RawValue>>> {
        #[derive(Deserialize)]
        struct Page {
            events: Vec<Box<RawValue>>,
            next_after: Option<String>,
            has_more: bool,
        }
        let mut all = Vec::new();
        let read = |page: Page| {
            all.extend(page.events);
            page.next_after.filter(|_| page.has_more).map(|last| format!("&after={last}"))
        };
        self.pages(&format!("/api/v1/events?limit={PAGE}"), read).await?;
        Ok(all)
    }

    /// Reads the items of one page of a list.
    async fn items<T: DeserializeOwned>(&self, path: &str, name: &str) -> anyhow::Result<Vec<T>> {
        let mut page: Value = self.get(path).await?;
        serde_json::from_value(page[name].take()).with_context(|| format!("GET {path} has no valid `{name}`"))
    }

    /// Returns the service's delivery log of a payment.
    pub async fn deliveries(&self, id: PaymentId) -> anyhow::Result<Vec<Value>> {
        self.items(&format!("/payments/{id}/webhooks"), "deliveries").await
    }

    /// Returns true if the service shows a transfer of the payment. Uses the connections for sampled payments.
    pub async fn shows_transfer(&self, id: PaymentId) -> anyhow::Result<bool> {
        #[derive(Deserialize)]
        struct PaymentView {
            transfers: Vec<serde::de::IgnoredAny>,
        }
        let payment: PaymentView = read(&self.sample, &format!("/payments/{id}")).await?;
        Ok(!payment.transfers.is_empty())
    }

    /// Returns the status of a payment.
    pub async fn status(&self, id: PaymentId) -> anyhow::Result<String> {
        let payment: Value = self.get(&format!("/payments/{id}")).await?;
        Ok(payment["status"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns a page of the deliveries that are queued, wait for a retry or are exhausted, oldest first, from `offset`
    /// on: the ids of their payments (or of other subjects). Empty after the last page.
    pub async fn undelivered(&self, offset: usize) -> anyhow::Result<Vec<String>> {
        let path = format!("/api/v1/webhook/undelivered?limit={PAGE}&offset={offset}");
        let deliveries: Vec<Value> = self.items(&path, "deliveries").await?;
        Ok(deliveries.iter().map(|one| one["payment_id"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Returns up to `limit` postings of the PSP's ledger after `position`, oldest first.
    pub async fn entries(&self, after: i64, limit: usize) -> anyhow::Result<Vec<LedgerEntry>> {
        self.items(&format!("/ledger/entries?after={after}&limit={limit}"), "entries").await
    }

    /// Returns the PSP's balances of each token on each chain.
    pub async fn balances(&self) -> anyhow::Result<Vec<Balance>> {
        self.items("/balances", "balances").await
    }

    /// Moves the sandbox's clock forward. Returns its offset from real time, in seconds.
    pub async fn advance_clock(&self, secs: u64) -> anyhow::Result<i64> {
        let moved = self.post("/sandbox/clock/advance", &json!({"seconds": secs})).await?;
        moved["offset_seconds"].as_i64().context("the answer has no `offset_seconds`")
    }

    /// Returns all webhooks in one of the sandbox's inboxes.
    pub async fn inbox(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        #[derive(Deserialize)]
        struct Page {
            webhooks: Vec<Value>,
            next: u64,
        }
        let mut all = Vec::new();
        let read = |page: Page| {
            let next = (!page.webhooks.is_empty()).then(|| format!("&after={}", page.next));
            all.extend(page.webhooks);
            next
        };
        self.pages(&format!("/sandbox/inbox/{name}?limit=1000"), read).await?;
        Ok(all)
    }
}

async fn read<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<T> {
    let read = client.read(|| request(Method::GET, path, Bytes::new())).await;
    parsed(&read.with_context(|| format!("GET {path}"))?, &Method::GET, path)
}

fn parsed<T: DeserializeOwned>(response: &Response, method: &Method, path: &str) -> anyhow::Result<T> {
    ensure!(response.status.is_success(), "{method} {path} answered {}: {}", response.status, problem(response).detail);
    serde_json::from_slice(&response.body).with_context(|| format!("the answer to {method} {path} cannot be read"))
}

fn problem(response: &Response) -> Problem {
    let none = || Problem { code: "no_problem_document".to_owned(), detail: "no further words".to_owned() };
    serde_json::from_slice(&response.body).unwrap_or_else(|_| none())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::routing::{patch, post};
    use axum::{Json, Router};
    use parking_lot::Mutex;

    use super::*;
    use crate::stub::serve;

    /// Returns the requests that [`Psp::receive_at`] sends to a service with this endpoint, and the secret it returns.
    async fn requests_to_receive(before: Option<&str>) -> (Vec<&'static str>, String) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answer = |name: &'static str, secret: Option<&'static str>| {
            let requests = Arc::clone(&requests);
            move || async move {
                requests.lock().push(name);
                Json(json!({"signing_secret": secret}))
            }
        };
        let router = Router::new()
            .route("/api/v1/set_webhook", patch(answer("set", before.is_none().then_some("whsec_first"))))
            .route("/api/v1/webhook/rotate", post(answer("rotate", Some("whsec_new"))));
        let before = WebhookEndpoint { webhook_url: before.map(str::to_owned), events: vec!["*".to_owned()] };
        let psp = Psp::new(&serve(router).await, "sk_test_x").unwrap();
        let secret = psp.receive_at("http://127.0.0.1:1/here", &before).await.unwrap();
        let requests = requests.lock().clone();
        (requests, secret)
    }

    #[tokio::test]
    async fn the_secret_is_rotated_before_the_endpoint_changes() {
        assert_eq!(requests_to_receive(None).await, (vec!["set"], "whsec_first".to_owned()));
        let before = Some("http://127.0.0.1:1/before");
        assert_eq!(requests_to_receive(before).await, (vec!["rotate", "set"], "whsec_new".to_owned()));
    }

    #[tokio::test]
    async fn an_authorization_is_submitted_again_only_while_the_service_is_overloaded() {
        for (code, submissions, is_accepted) in [("overloaded", 2, true), ("authorization_nonce", 1, false)] {
            let seen = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&seen);
            let answer = move || async move {
                *counted.lock() += 1;
                let is_first = *counted.lock() == 1;
                let status = if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::ACCEPTED };
                (status, Json(json!({"code": code, "detail": "."})))
            };
            let router = Router::new().route("/payments/{id}/authorization", post(answer));
            let psp = Psp::new(&serve(router).await, "sk_test_x").unwrap();
            assert_eq!(
                psp.authorize(PaymentId::generate(), "{}".to_owned(), Persistence::Usual).await.is_ok(),
                is_accepted,
                "{code}"
            );
            assert_eq!(*seen.lock(), submissions, "{code}");
        }
    }

    #[test]
    fn payments_have_different_amounts_on_all_chains_and_tokens() {
        let all: Vec<PaymentTerms> = (0..600).map(PaymentTerms::nth).collect();
        for chain in Chain::ALL {
            for token in Token::ALL {
                assert_eq!(all.iter().filter(|one| one.chain == chain && one.token == token).count(), 100);
            }
        }
        let amounts: std::collections::BTreeSet<_> = all.iter().map(|one| one.amount).collect();
        assert_eq!(amounts.len(), 600);
        // A difference of a balance identifies one payment in a run of any usual length, also if some payments have
        // another token (`Intent::nth`).
        let shares: std::collections::HashSet<_> =
            (0..300_000).map(PaymentTerms::nth).map(|one| (one.chain, one.amount)).collect();
        assert_eq!(shares.len(), 300_000);
    }
}
