//! Clients that create and pay payments constantly and check every answer.
//!
//! Each initiation has an idempotency key and is repeated until it returns a payment, and then once more: the same
//! payment must be returned. Every other answer must be a refusal with Retry-After.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry::sandbox::{Payer, SandboxEnv as Chains};
use payferry_harness::PATIENCE;
use payferry_harness::psp::Psp;
use tokio::task::JoinSet;

use super::fixture::Fixture;
use crate::prelude::*;

/// Number of concurrent clients.
const CUSTOMERS: usize = 4;
/// Pause of a client after each payment and after each refusal.
const PAUSE: Duration = Duration::from_millis(150);
const AMOUNT: &str = "7.77";

/// The running load.
pub struct Load {
    shared: Arc<Shared>,
    customers: JoinSet<Vec<(String, Chain, Token)>>,
}

/// Result of the load.
pub struct Made {
    pub made: Vec<(String, Chain, Token)>,
    pub refused: usize,
}

struct Shared {
    http: reqwest::Client,
    psp: Psp,
    chains: Arc<Chains>,
    keys: AtomicUsize,
    is_over: AtomicBool,
    answers: Mutex<Vec<Answered>>,
}

/// One answer to an initiation.
#[derive(Clone, Copy)]
struct Answered {
    at: Instant,
    took: Duration,
    is_made: bool,
}

impl Load {
    pub fn start(fixture: &Fixture) -> Self {
        let shared = Arc::new(Shared {
            http: reqwest::Client::new(),
            psp: fixture.psp.clone(),
            chains: fixture.chains(),
            keys: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            answers: Mutex::default(),
        });
        let mut customers = JoinSet::new();
        for _ in 0..CUSTOMERS {
            customers.spawn(Arc::clone(&shared).customer());
        }
        Self { shared, customers }
    }

    /// Returns the longest successful request so far.
    pub fn slowest(&self) -> Duration {
        self.shared.answers.lock().iter().filter(|answer| answer.is_made).map(|answer| answer.took).max().unwrap()
    }

    /// Waits until this many payments are created.
    pub async fn until_made(&mut self, count: usize) {
        self.until("payments are made", |answers| {
            answers.iter().filter(|answer| answer.is_made).nth(count - 1).copied()
        })
        .await;
    }

    /// Waits until a request is refused.
    pub async fn until_refused(&mut self, since: Instant) {
        self.until("a request is refused", |answers| answers.iter().find(|a| a.at >= since && !a.is_made).copied())
            .await;
    }

    /// Returns the time from `since` until a payment is created.
    pub async fn until_made_since(&mut self, since: Instant) -> Duration {
        let made =
            self.until("a payment is made", |answers| answers.iter().find(|a| a.at >= since && a.is_made).copied());
        made.await.at - since
    }

    async fn until(&mut self, what: &str, find: impl Fn(&[Answered]) -> Option<Answered>) -> Answered {
        until(what, async || {
            let found = find(&self.shared.answers.lock());
            if let Some(ended) = self.customers.try_join_next() {
                panic!("a client gave up: {:?}", ended.err());
            }
            found
        })
        .await
    }

    /// Lets the clients finish their current work.
    pub async fn stop(self) -> Made {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let made = self.customers.join_all().await.concat();
        let refused = self.shared.answers.lock().iter().filter(|answer| !answer.is_made).count();
        Made { made, refused }
    }
}

impl Shared {
    async fn customer(self: Arc<Self>) -> Vec<(String, Chain, Token)> {
        let mut made = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let n = self.keys.fetch_add(1, Ordering::Relaxed);
            let (chain, token) = (Chain::ALL[n % 3], Token::ALL[n / 3 % 2]);
            let body = self.psp.initiation(AMOUNT, token, chain.as_str());
            let (key, post) =
                (format!("payment-{n}"), || self.http.post(format!("{}/payments/initiate", self.psp.url)));
            let payment = self.post_until_accepted(|| post().header("idempotency-key", &key).json(&body), true).await;
            let (id, wallet) = (text(&payment, "payment_id"), text(&payment, "intermediary_wallet"));
            let (wallet, amount) = (wallet.parse().unwrap(), AMOUNT.parse().unwrap());
            self.chains.chain(chain).transfer(Payer::Clean, token, wallet, amount).await.unwrap();

            let again = self.post_until_accepted(|| post().header("idempotency-key", &key).json(&body), false).await;
            assert_eq!(again, payment, "the same answer to the same key");
            let read =
                self.post_until_accepted(|| self.http.get(format!("{}/payments/{id}", self.psp.url)), false).await;
            assert_eq!(text(&read, "payment_id"), id, "acknowledged payments exist");
            made.push((id.to_owned(), chain, token));
            tokio::time::sleep(PAUSE).await;
        }
        made
    }

    /// Repeats the request until it succeeds.
    async fn post_until_accepted(&self, request: impl Fn() -> reqwest::RequestBuilder, is_noted: bool) -> Value {
        let since = Instant::now();
        loop {
            let begun = Instant::now();
            let response = request().bearer_auth(&self.psp.api_key).send().await.unwrap();
            let (status, headers) = (response.status(), response.headers().clone());
            let (at, took, is_made) = (Instant::now(), begun.elapsed(), status.is_success());
            if is_noted || !is_made {
                self.answers.lock().push(Answered { at, took, is_made });
            }
            let body: Value = response.json().await.unwrap();
            if is_made {
                return body;
            }
            // The outcome of the first attempt may still be undecided in the database.
            let is_running = status == 409 && body["code"] == "idempotency_request_running";
            assert!(status == 503 || is_running, "{status} {body:#}");
            assert_eq!(headers["content-type"], "application/problem+json");
            let retry_after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..60).contains(&retry_after), "{retry_after}");
            assert!(since.elapsed() < PATIENCE, "still refused: {body:#}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body[field].as_str().unwrap_or_else(|| panic!("no {field} in {body:#}"))
}
