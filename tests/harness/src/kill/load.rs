//! The load: payments at a steady rate, whatever the service does, each made by a PSP that insists and paid by payers who
//! never hear of the service's deaths.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, B256};
use payferry_domain::{Chain, Token};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::behaviour::{Behaviour, EXPIRES_SOON_SECS, Intent};
use crate::payers::{Payer, Payers};
use crate::psp::{Psp, decimal};

/// How long a PSP insists on an answer. Deaths in a row are shorter.
const INSIST: Duration = Duration::from_mins(3);

/// A transfer that a payer sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Where.
    pub chain: Chain,
    /// In which token.
    pub token: Token,
    /// To which wallet.
    pub to: Address,
    /// Its transaction.
    pub tx_hash: B256,
    /// Base units.
    pub units: i64,
}

/// What happened to one payment, as those outside saw it.
#[derive(Debug, Clone)]
pub struct Story {
    /// What was meant to happen.
    pub intent: Intent,
    /// What was asked for.
    pub request: Value,
    /// The first answer: from then on the payment must not be lost.
    pub made: Option<Value>,
    /// A request was refused that must not be.
    pub trouble: Option<String>,
    /// What was paid.
    pub sent: Vec<Sent>,
    /// The payment as it was read in the end.
    pub read: Option<Value>,
    /// The answer to the same request with the same key in the end.
    pub replayed: Option<Value>,
}

impl Story {
    /// The payment's id, once it was acknowledged.
    pub fn payment_id(&self) -> Option<&str> {
        self.made.as_ref()?["payment_id"].as_str()
    }

    /// For findings: the payment, or its request's key.
    pub fn name(&self) -> String {
        self.payment_id().map_or_else(|| format!("request {}", self.intent.key), str::to_owned)
    }
}

/// Where the load goes.
#[derive(Debug)]
pub struct Load {
    /// Who asks.
    pub psp: Psp,
    /// Who pays, by chain.
    pub payers: BTreeMap<Chain, Payers>,
    /// Payments a second.
    pub rate: f64,
    /// Decides all of it.
    pub seed: u64,
    stopped: AtomicBool,
    requests: AtomicU64,
    retried: AtomicU64,
}

impl Load {
    /// Not yet running.
    pub fn new(psp: Psp, payers: BTreeMap<Chain, Payers>, rate: f64, seed: u64) -> Self {
        let (requests, retried) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { psp, payers, rate, seed, stopped: AtomicBool::new(false), requests, retried }
    }

    /// Nothing new is begun; what was begun is played to its end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Requests that had to be answered, and how often they were sent again.
    pub fn requests(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.retried.load(Ordering::Relaxed))
    }

    /// Begins payments at the rate until it is stopped; answers their stories when all are told.
    pub async fn run(self: Arc<Self>) -> Vec<Story> {
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / self.rate));
        // Open-loop: a slow service is not spared.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut stories = JoinSet::new();
        for number in 0.. {
            ticks.tick().await;
            if self.stopped.load(Ordering::Acquire) {
                break;
            }
            let this = Arc::clone(&self);
            stories.spawn(async move { this.play(Intent::nth(this.seed, number)).await });
        }
        stories.join_all().await
    }

    async fn play(&self, intent: Intent) -> Story {
        let mut request = self.psp.initiation(&decimal(intent.units), intent.token, intent.chain);
        request["reference"] = json!(intent.key);
        if intent.behaviour == Behaviour::NeverPays {
            request["expires_in"] = json!(EXPIRES_SOON_SECS);
        }
        let mut story =
            Story { request, made: None, trouble: None, sent: Vec::new(), read: None, replayed: None, intent };
        match self.insist("/payments/initiate", &story.request, &story.intent.key).await {
            Ok(made) => {
                let id = made["payment_id"].as_str().unwrap_or_default().to_owned();
                story.made = Some(made);
                if story.intent.behaviour == Behaviour::Cancels {
                    let key = format!("{}-cancel", story.intent.key);
                    let cancelled = self.insist(&format!("/payments/{id}/cancel"), &json!({}), &key).await;
                    story.trouble = cancelled.err().map(|why| format!("could not be cancelled: {why}"));
                }
                self.pay(&mut story).await;
            }
            Err(why) => story.trouble = Some(format!("could not be made: {why}")),
        }
        story
    }

    async fn insist(&self, path: &str, body: &Value, key: &str) -> Result<Value, String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (answer, again) = self.psp.insist(path, body, key, INSIST).await?;
        self.retried.fetch_add(u64::from(again), Ordering::Relaxed);
        Ok(answer)
    }

    async fn pay(&self, story: &mut Story) {
        let made = story.made.as_ref().unwrap();
        let chain: Chain = made["chain"].as_str().unwrap().parse().unwrap();
        let to: Address = made["intermediary_wallet"].as_str().unwrap().parse().unwrap();
        let (token, payers) = (story.intent.token, &self.payers[&chain]);
        let payer = if story.intent.behaviour == Behaviour::Tainted { Payer::Sanctioned } else { Payer::Clean };
        let waits = match story.intent.behaviour {
            Behaviour::TwoTransfers => [story.intent.waits_ms[0], 0],
            _ => story.intent.waits_ms,
        };
        for (units, wait_ms) in story.intent.transfers().into_iter().zip(waits) {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            let tx_hash = payers.transfer(payer, token, to, units).await;
            story.sent.push(Sent { chain, token, to, tx_hash, units });
        }
    }
}
