//! The load: payments at a steady rate, independent of the service's state. The PSP repeats requests until they are
//! answered, and payers are not aware of kills. A steady share are outbound transfers: refunds, payouts and
//! withdrawals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256};
use payferry_domain::{Chain, Token};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::behaviour::{Behaviour, EXCESS, EXPIRES_SOON_SECS, Intent};
use super::creation::Creation;
use super::outgoing::Outgoing;
use super::payees::Payees;
use crate::payers::{Payer, Payers};
use crate::psp::{Psp, decimal};

/// Maximum time a PSP waits for an answer. Consecutive kills are shorter; but orders of one PSP are committed one at a
/// time, and on a slow machine a hundred of them take minutes.
const INSIST: Duration = Duration::from_mins(10);
/// One order in this number is requested twice at once, as by an impatient PSP.
const IMPATIENT_OF: i64 = 3;
/// Interval at which a PSP polls a payment.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub struct Sent {
    pub chain: Chain,
    pub tx_hash: B256,
    /// Amount in base units.
    pub units: i64,
}

/// One payment as seen from outside.
#[derive(Debug, Clone)]
pub struct Story {
    pub intent: Intent,
    pub creation: Creation,
    pub sent: Vec<Sent>,
    /// The customer's registered wallet that must receive a transfer; `None` for a payment.
    pub to: Option<Address>,
    pub refunds: Vec<Outgoing>,
}

impl Story {
    /// Total amount paid, in base units.
    pub fn paid(&self) -> i64 {
        self.sent.iter().map(|sent| sent.units).sum()
    }

    /// Amount refunded from the payment's own wallet according to the service, in base units.
    pub fn refunded_from_wallet(&self) -> i64 {
        let refunds = self.refunds.iter().filter(|refund| refund.is_sent() && refund.is_from_wallet());
        refunds.map(|refund| refund.units).sum()
    }
}

/// All payments and orders of a run.
#[derive(Debug, Clone, Default)]
pub struct Stories {
    /// Payments, and transfers to customers.
    pub payments: Vec<Story>,
    /// Payouts and withdrawals.
    pub orders: Vec<Outgoing>,
}

#[derive(Debug)]
pub struct Load {
    pub psp: Psp,
    pub payers: BTreeMap<Chain, Payers>,
    /// The recipients of outbound transfers.
    pub payees: Payees,
    /// Payments per second.
    pub rate: f64,
    /// Seed of all random choices.
    pub seed: u64,
    stopped: AtomicBool,
    requests: AtomicU64,
    retried: AtomicU64,
}

impl Load {
    /// Creates a load that does not run yet.
    pub fn new(psp: Psp, payers: BTreeMap<Chain, Payers>, payees: Payees, rate: f64, seed: u64) -> Self {
        let (requests, retried) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { psp, payers, payees, rate, seed, stopped: AtomicBool::new(false), requests, retried }
    }

    /// Starts no further payments; those already started are completed.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Number of requests that change data, and of their repetitions.
    pub fn requests(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.retried.load(Ordering::Relaxed))
    }

    /// Funds the PSP's balance in every token on every chain, and waits for settlement.
    pub async fn fund(&self, units: i64) -> Vec<Story> {
        let places = self.payers.keys().flat_map(|chain| Token::ALL.map(|token| (*chain, token)));
        let stories = places.map(|(chain, token)| self.play(Intent::funds(self.seed, chain, token, units)));
        let stories = futures::future::join_all(stories).await;
        for id in stories.iter().filter_map(|story| story.creation.id()) {
            self.until(id, "settled").await.unwrap();
        }
        stories
    }

    /// Starts payments and orders at the rate until stopped. Returns all of them when they are complete.
    pub async fn run(self: Arc<Self>) -> Stories {
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / self.rate));
        // Open loop: the rate does not depend on the service's speed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut payments, mut orders) = (JoinSet::new(), JoinSet::new());
        for number in 0.. {
            ticks.tick().await;
            if self.stopped.load(Ordering::Acquire) {
                break;
            }
            let this = Arc::clone(&self);
            payments.spawn(async move { this.play(Intent::nth(this.seed, number)).await });
            if let Some(order) = Outgoing::nth(self.seed, number, &self.payees) {
                let this = Arc::clone(&self);
                orders.spawn(async move { this.order(order).await });
            }
        }
        Stories { payments: payments.join_all().await, orders: orders.join_all().await }
    }

    async fn play(&self, intent: Intent) -> Story {
        let mut request = self.psp.initiation(&decimal(intent.units), intent.token, intent.chain);
        request["reference"] = json!(intent.key);
        if intent.behaviour == Behaviour::NeverPays {
            request["expires_in"] = json!(EXPIRES_SOON_SECS);
        }
        let customer = intent.behaviour.is_transfer().then(|| &self.payees.customers[0]);
        if let Some(customer) = customer {
            request.as_object_mut().unwrap().remove("merchant_id");
            request["customer_id"] = json!(customer.customer_id);
        }
        let (to, creation) = (customer.map(|customer| customer.wallet), intent.creation(request));
        let mut story = Story { intent, creation, sent: Vec::new(), to, refunds: Vec::new() };
        let Creation { path, request, key, .. } = &story.creation;
        match self.post_until_accepted(path, request, key).await {
            Ok(made) => {
                story.creation.made = Some(made);
                if story.intent.behaviour == Behaviour::Cancels {
                    let cancelled = self.change(&story, "cancel", &json!({})).await;
                    story.creation.trouble = cancelled.err().map(|why| format!("could not be cancelled: {why}"));
                }
                self.pay(&mut story).await;
                if let Err(why) = self.decide(&mut story).await {
                    story.creation.trouble = Some(why);
                }
            }
            Err(why) => story.creation.trouble = Some(format!("could not be made: {why}")),
        }
        story
    }

    /// Executes the PSP's decisions about a paid payment: refunds, of which the last may ask for all that is left, and
    /// acceptance.
    async fn decide(&self, story: &mut Story) -> Result<(), String> {
        let paid = story.paid();
        let (status, refunds, accepts) = match story.intent.behaviour {
            Behaviour::Returned => ("settled", vec![(paid, true)], false),
            Behaviour::ReturnedInParts => ("settled", vec![(paid / 3, false), (paid - paid / 3, true)], false),
            Behaviour::ShortReturned => ("mismatched", vec![(paid, true)], false),
            Behaviour::OverReturned => ("mismatched", vec![(EXCESS, false)], true),
            Behaviour::ShortAccepted => ("mismatched", vec![], true),
            _ => return Ok(()),
        };
        self.until(story.creation.id().unwrap_or_default(), status).await?;
        for (units, is_all) in refunds {
            self.refund(story, units, is_all).await;
        }
        if accepts { self.accept(story).await } else { Ok(()) }
    }

    async fn refund(&self, story: &mut Story, units: i64, is_all: bool) {
        let key = format!("{}-refund-{}", story.intent.key, story.refunds.len() + 1);
        let refund = Outgoing::refund(story.creation.made.as_ref().unwrap(), key, units, is_all);
        story.refunds.push(self.order(refund).await);
    }

    async fn accept(&self, story: &Story) -> Result<(), String> {
        let accept = json!({"action": "accept", "expected_received": decimal(story.paid())});
        let accepted = self.change(story, "resolve", &accept).await;
        accepted.map(|_| ()).map_err(|why| format!("could not be accepted: {why}"))
    }

    /// Sends a decision about a payment.
    async fn change(&self, story: &Story, what: &str, body: &Value) -> Result<Value, String> {
        let id = story.creation.id().unwrap_or_default();
        self.post_until_accepted(&format!("/payments/{id}/{what}"), body, &format!("{}-{what}", story.intent.key)).await
    }

    /// Sends an order, sometimes twice at once: both requests must get the same answer.
    async fn order(&self, mut order: Outgoing) -> Outgoing {
        let Creation { path, request, key, .. } = &order.creation;
        let ask = || self.post_until_accepted(path, request, key);
        let answer = if order.units % IMPATIENT_OF == 0 {
            match tokio::join!(ask(), ask()) {
                (Ok(one), Ok(other)) if one != other => Err(format!("asked twice at once, answered {one} and {other}")),
                (one, other) => one.and(other),
            }
        } else {
            ask().await
        };
        match answer {
            Ok(made) => order.creation.made = Some(made),
            Err(why) => order.creation.trouble = Some(format!("could not be ordered: {why}")),
        }
        order
    }

    /// Waits until the payment has this status, across kills of the service.
    async fn until(&self, id: &str, status: &str) -> Result<(), String> {
        let (since, path) = (Instant::now(), format!("/payments/{id}"));
        loop {
            let read = self.psp.try_call(Method::GET, &path, &Value::Null, None).await;
            match read {
                Ok((_, read)) if read["status"] == status => return Ok(()),
                read if since.elapsed() > INSIST => return Err(format!("did not become {status}: {read:?}")),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn post_until_accepted(&self, path: &str, body: &Value, key: &str) -> Result<Value, String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (answer, again) = self.psp.post_until_accepted(path, body, key, INSIST).await?;
        self.retried.fetch_add(u64::from(again), Ordering::Relaxed);
        Ok(answer)
    }

    async fn pay(&self, story: &mut Story) {
        let made = story.creation.made.as_ref().unwrap();
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
            story.sent.push(Sent { chain, tx_hash, units });
        }
    }
}
