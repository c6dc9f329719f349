//! The PSP's side of the load: the service's HTTP interface, as far as the load tester calls it.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, bail, ensure};
use axum::http::Method;
use hyper::body::Bytes;
use payferry_domain::{MerchantId, PaymentId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::behaviour::Intent;
use super::client::{Answer, CallError, Client, request};
use super::ground::Ground;
use super::ledger::{Balance, Entry};
use super::settings::Settings;

/// Connections that initiations share unless asked otherwise. One carries a request at a time; who finds none waits for one.
pub const CONNECTIONS_MAX: usize = 256;
/// How long an initiation may take.
pub const INITIATE_DEADLINE: Duration = Duration::from_secs(10);
/// How long any other request may take; the sandbox's clock needs some time for a long way.
const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// Connections for everything else: reads, transfers, blocks.
const SIDE_CONNECTIONS_MAX: usize = 16;
/// Connections for payments of the sample that are watched: as many as are at once, so that none waits for another, and no
/// payer for any.
pub const SAMPLE_CONNECTIONS_MAX: usize = 64;
/// Items of a page: the most that the interface gives.
pub const PAGE: usize = 200;
/// Pages of one list: beyond it, something is wrong with the list.
const PAGES_MAX: usize = 100_000;

/// The interface, called with a PSP's key.
#[derive(Debug, Clone)]
pub struct Api {
    initiations: Arc<Client>,
    side: Arc<Client>,
    sample: Arc<Client>,
}

/// The answer to an initiation.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Made {
    /// The payment.
    pub payment_id: PaymentId,
    /// Where its payer sends the money.
    pub intermediary_wallet: Address,
}

/// Why there is no payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMade {
    /// The service said no: its status and the code of its problem.
    Refused(u16, String),
    /// It did not answer, or could not even be asked.
    Unanswered(CallError),
    /// It answered 201 and something that cannot be read.
    Unreadable,
}

/// The webhook endpoint of a PSP.
#[derive(Debug, Clone, Deserialize)]
pub struct Endpoint {
    /// Where events go; none was ever set if it is null.
    pub webhook_url: Option<String>,
    /// Which.
    pub events: Vec<String>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
}

impl Api {
    /// The interface at `url`.
    pub fn new(url: &str, key: &str) -> anyhow::Result<Self> {
        Self::with_connections(url, key, CONNECTIONS_MAX)
    }

    /// The same, for so many initiations at once.
    pub fn with_connections(url: &str, key: &str, connections_max: usize) -> anyhow::Result<Self> {
        Ok(Self {
            initiations: Arc::new(Client::new(url, connections_max, INITIATE_DEADLINE)?.bearer(key)?),
            side: Arc::new(Client::new(url, SIDE_CONNECTIONS_MAX, CALL_DEADLINE)?.bearer(key)?),
            sample: Arc::new(Client::new(url, SAMPLE_CONNECTIONS_MAX, CALL_DEADLINE)?.bearer(key)?),
        })
    }

    /// The client of everything but initiations.
    pub fn side(&self) -> &Arc<Client> {
        &self.side
    }

    /// Where everything is on the sandbox's chains. What is not a sandbox, or not ours, is told clearly.
    pub async fn ground(&self) -> anyhow::Result<Ground> {
        let answer = self.side.get("/sandbox").await.context("the service cannot be reached")?;
        match answer.status.as_u16() {
            200 => serde_json::from_slice(&answer.body).context("GET /sandbox cannot be read"),
            401 | 403 => bail!("the service does not take the key: {}", problem(&answer).detail),
            404 => {
                bail!("it is no sandbox: it has no /sandbox and no /sandbox/rpc, and payments here are simulated money")
            }
            status => bail!("GET /sandbox answered {status}"),
        }
    }

    /// What is decided about the PSP's payments.
    pub async fn settings(&self) -> anyhow::Result<Settings> {
        #[derive(Deserialize)]
        struct Shown {
            settings: Settings,
        }
        let shown: Shown = self.read("/api/v1/settings").await?;
        Ok(shown.settings)
    }

    /// A merchant of the run's own.
    pub async fn merchant(&self, run: &str) -> anyhow::Result<MerchantId> {
        let merchant = json!({
            "external_id": format!("load-{run}"), "name": "Load test", "email": "load@example.com", "business_id": run,
        });
        let synced = self.send(Method::POST, "/merchants/sync", &json!({"merchants": [merchant]})).await?;
        let id = synced.pointer("/merchants/0/merchant_id").and_then(Value::as_str);
        id.context("the answer names no merchant")?.parse().context("the merchant's id cannot be read")
    }

    /// Where events go now.
    pub async fn endpoint(&self) -> anyhow::Result<Endpoint> {
        self.read("/api/v1/webhook").await
    }

    /// Sends events there from now on, after `before`; answers the secret that signs them.
    pub async fn receive_at(&self, url: &str, before: &Endpoint) -> anyhow::Result<String> {
        let all = ["*".to_owned()];
        let secret = |answer: &Value| answer["signing_secret"].as_str().map(str::to_owned);
        if before.webhook_url.is_none()
            && let Some(secret) = secret(&self.set_endpoint(url, &all).await?)
        {
            return Ok(secret);
        }
        // It was shown once, to somebody else: a new one, beside which the old one goes on signing for a day. Before anything
        // is sent here, since what was signed before that is signed by the old one alone.
        let rotated = self.send(Method::POST, "/api/v1/webhook/rotate", &json!({})).await?;
        self.set_endpoint(url, &all).await?;
        secret(&rotated).context("the answer has no signing secret")
    }

    /// Sets where which events go.
    pub async fn set_endpoint(&self, url: &str, events: &[String]) -> anyhow::Result<Value> {
        self.send(Method::PATCH, "/api/v1/set_webhook", &json!({"webhook_url": url, "events": events})).await
    }

    /// Makes a payment, asked for once.
    pub async fn initiate(&self, merchant: MerchantId, reference: &str, intent: &Intent) -> Result<Made, NotMade> {
        self.initiate_begun(merchant, reference, intent).await.1
    }

    /// The same. Answers, too, when its request had a connection ([`Client::call_begun`]).
    pub async fn initiate_begun(
        &self,
        merchant: MerchantId,
        reference: &str,
        intent: &Intent,
    ) -> (Option<Instant>, Result<Made, NotMade>) {
        let Intent { chain, token, amount, .. } = intent;
        let expires_in = intent.expires_secs();
        // Written by hand: everything in it is our own and needs no escaping.
        let body = format!(
            r#"{{"merchant_id":"{merchant}","amount":"{amount}","currency":"{token}","chain":"{chain}","expires_in":{expires_in},"reference":"{reference}"}}"#
        );
        let request = request(Method::POST, "/payments/initiate", body.into());
        let (begun, answer) = self.initiations.call_begun(request).await;
        let made = answer.map_err(NotMade::Unanswered).and_then(|answer| match answer.status.as_u16() {
            201 => serde_json::from_slice(&answer.body).map_err(|_| NotMade::Unreadable),
            status => Err(NotMade::Refused(status, problem(&answer).code)),
        });
        (begun, made)
    }

    /// Every payment of a merchant, newest first, page by page.
    pub async fn payments<T: DeserializeOwned>(
        &self,
        merchant: MerchantId,
        mut each: impl FnMut(T),
    ) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Page<T> {
            payments: Vec<T>,
            next_after: Option<String>,
        }
        let mut after = String::new();
        for _ in 0..PAGES_MAX {
            let path = format!("/payments?merchant_id={merchant}&limit={PAGE}{after}");
            let page: Page<T> = self.read(&path).await?;
            page.payments.into_iter().for_each(&mut each);
            match page.next_after {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(()),
            }
        }
        bail!("the list of payments does not end")
    }

    /// What the service says of a payment's deliveries, in short; for people who look for one that is missing.
    pub async fn deliveries(&self, id: PaymentId) -> anyhow::Result<Vec<Value>> {
        let mut log: Value = self.read(&format!("/payments/{id}/webhooks")).await?;
        let deliveries = log["deliveries"].take();
        serde_json::from_value(deliveries).context("the delivery log has no `deliveries`")
    }

    /// Whether the service shows a transfer of the payment; for those of the sample.
    pub async fn shows_transfer(&self, id: PaymentId) -> anyhow::Result<bool> {
        #[derive(Deserialize)]
        struct Shown {
            transfers: Vec<serde::de::IgnoredAny>,
        }
        let shown: Shown = read(&self.sample, &format!("/payments/{id}")).await?;
        Ok(!shown.transfers.is_empty())
    }

    /// A page of the deliveries that are queued, wait for a retry or are exhausted, oldest first, after so many of them:
    /// whose they are, which is a payment's id or something else's. Empty after the last.
    pub async fn undelivered(&self, offset: usize) -> anyhow::Result<Vec<String>> {
        let list: Value = self.read(&format!("/api/v1/webhook/undelivered?limit={PAGE}&offset={offset}")).await?;
        let deliveries = list["deliveries"].as_array().context("the list has no `deliveries`")?;
        Ok(deliveries.iter().map(|one| one["payment_id"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Postings of the PSP's ledger after a position, oldest first, up to so many.
    pub async fn entries(&self, after: i64, limit: usize) -> anyhow::Result<Vec<Entry>> {
        #[derive(Deserialize)]
        struct Page {
            entries: Vec<Entry>,
        }
        let page: Page = self.read(&format!("/ledger/entries?after={after}&limit={limit}")).await?;
        Ok(page.entries)
    }

    /// What the PSP has, of each token of each chain.
    pub async fn balances(&self) -> anyhow::Result<Vec<Balance>> {
        #[derive(Deserialize)]
        struct List {
            balances: Vec<Balance>,
        }
        let list: List = self.read("/balances").await?;
        Ok(list.balances)
    }

    /// Moves the sandbox's clock on; answers how far it is ahead now, in seconds.
    pub async fn advance_clock(&self, secs: u64) -> anyhow::Result<i64> {
        let moved = self.send(Method::POST, "/sandbox/clock/advance", &json!({"seconds": secs})).await?;
        moved["offset_seconds"].as_i64().context("the answer has no `offset_seconds`")
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        read(&self.side, path).await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = request(method.clone(), path, body.to_string().into());
        let answer = self.side.call(request).await.with_context(|| format!("{method} {path}"))?;
        ensure!(answer.status.is_success(), "{method} {path} answered {}: {}", answer.status, problem(&answer).detail);
        serde_json::from_slice(&answer.body).with_context(|| format!("the answer to {method} {path} cannot be read"))
    }
}

async fn read<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<T> {
    let read = client.read(|| request(Method::GET, path, Bytes::new())).await;
    let answer = read.with_context(|| format!("GET {path}"))?;
    ensure!(answer.status.is_success(), "GET {path} answered {}: {}", answer.status, problem(&answer).detail);
    serde_json::from_slice(&answer.body).with_context(|| format!("the answer to GET {path} cannot be read"))
}

fn problem(answer: &Answer) -> Problem {
    let nameless = || Problem { code: "no_problem_document".to_owned(), detail: "no further words".to_owned() };
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| nameless())
}

impl NotMade {
    /// The kind of error, for counts.
    pub fn kind(&self) -> String {
        match self {
            Self::Refused(status, code) => format!("initiate: {status} {code}"),
            Self::Unanswered(error) => format!("initiate: {error}"),
            Self::Unreadable => "initiate: unreadable answer".to_owned(),
        }
    }

    /// Whether the payment may be there all the same.
    pub const fn may_be_made(&self) -> bool {
        match self {
            Self::Refused(..) => false,
            Self::Unanswered(error) => error.may_be_done(),
            Self::Unreadable => true,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::routing::{patch, post};
    use axum::{Json, Router};
    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;

    /// What is asked of a service whose endpoint was set before to this, and the secret that is answered.
    async fn asked_to_receive(before: Option<&str>) -> (Vec<&'static str>, String) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer = |name: &'static str, secret: Option<&'static str>| {
            let asked = Arc::clone(&asked);
            move || async move {
                asked.lock().push(name);
                Json(json!({"signing_secret": secret}))
            }
        };
        let router = Router::new()
            .route("/api/v1/set_webhook", patch(answer("set", before.is_none().then_some("whsec_first"))))
            .route("/api/v1/webhook/rotate", post(answer("rotate", Some("whsec_new"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let before = Endpoint { webhook_url: before.map(str::to_owned), events: vec!["*".to_owned()] };
        let api = Api::new(&url, "sk_test_x").unwrap();
        let secret = api.receive_at("http://127.0.0.1:1/here", &before).await.unwrap();
        let asked = asked.lock().clone();
        (asked, secret)
    }

    #[tokio::test]
    async fn nothing_comes_here_that_is_signed_by_the_old_secret_alone() {
        assert_eq!(asked_to_receive(None).await, (vec!["set"], "whsec_first".to_owned()));
        // Between the two, events still go to where they went before.
        let before = Some("http://127.0.0.1:1/before");
        assert_eq!(asked_to_receive(before).await, (vec!["rotate", "set"], "whsec_new".to_owned()));
    }
}
