//! Whole lives of payments: initiated, paid by a real transfer, confirmed, settled and told of by webhook.
//!
//! Two measurements: how many a second, and how long a payment's final block takes to become its first webhook. For the
//! second the chain's blocks are made here, one at a time, so that it is known when each was asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::HeaderValue;
use parking_lot::Mutex;
use payferry_testkit::wire::{Chain, MerchantId};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::drive::{count, number, open_loop, percentile_us};
use super::heard::{Received, is_split};
use super::service::{SandboxSetup, Service};
use super::table::{Goal, Line};
use super::world::World;
use payferry_testkit::psp::Api;
use payferry_testkit::psp::PaymentTerms;
use payferry_testkit::payers::Payers;
use payferry_testkit::receiver::Receiver;

/// Whole lives a second: wanted, and asked for.
const COMPLETE_GOAL: f64 = 300.0;
const COMPLETE_RATE: f64 = 330.0;
/// How long they are counted, as the goal says.
const COMPLETE_TIME: Duration = Duration::from_mins(1);
/// The rate is to be kept in each part of that time.
const SUSTAINED: Duration = Duration::from_secs(10);
/// How long they are asked for before that, until settled payments come as fast as new ones go.
const RAMP: Duration = Duration::from_secs(10);
/// Payments a second for the latency, and how long they are asked for at least: half a second's become final with one block,
/// and the slowest hundredth is to be of more than one.
const FINALITY_RATE: f64 = 100.0;
const FINALITY_TIME: Duration = Duration::from_mins(1);
const FINALITY_GOAL_MS: (f64, f64) = (20.0, 100.0);
/// The time between blocks of the chains on which payments are paid.
pub(super) const BLOCK_TIME: Duration = Duration::from_millis(500);
/// Where they are paid.
const FINALITY_CHAIN: Chain = Chain::Base;
/// In a quick run.
const RATE_QUICK: f64 = 20.0;
/// How long what was paid may take to be settled and told.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);

/// A service, with payers and a receiver.
pub(super) struct Stage {
    pub(super) service: Service,
    /// How the service was started.
    pub(super) setup: SandboxSetup,
    api: Api,
    merchant: MerchantId,
    pub(super) payers: Payers,
    received: Arc<Mutex<Received>>,
    _receiver: Receiver,
}

impl Stage {
    /// With a sandbox that `change` may want otherwise.
    pub(super) async fn set(
        world: &World,
        name: &str,
        block_time: Duration,
        change: impl FnOnce(&mut SandboxSetup),
    ) -> anyhow::Result<Arc<Self>> {
        let mut setup = SandboxSetup { block_time, ..world.setup(name)? };
        change(&mut setup);
        let service = Service::sandbox(&setup).await?;
        let api = Api::new(&service.ready.api_url, &service.ready.api_key)?;
        let ground = api.ground().await?;
        let merchant = api.merchant("bench").await?;
        let received = Arc::new(Mutex::new(Received::default()));
        let hearing = received.clone();
        let receiver = Receiver::start(move |heard| hearing.lock().hear(heard)).await?;
        let before = api.endpoint().await?;
        receiver.verify_with(&api.receive_at(receiver.url(), &before).await?);
        let payers = Payers::set_up(api.side(), &ground, name).await?;
        Ok(Arc::new(Self { service, setup, api, merchant, payers, received, _receiver: receiver }))
    }

    /// CPU time that the service has used, seconds.
    pub(super) fn cpu_secs(&self) -> anyhow::Result<f64> {
        self.service.cpu_secs()
    }

    /// Where the service answers.
    pub(super) fn api_url(&self) -> &str {
        &self.service.ready.api_url
    }

    /// Whether its ledger has entries.
    pub(super) async fn entries(&self) -> anyhow::Result<bool> {
        let answer = self.api.side().get("/ledger/entries?limit=1").await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
        Ok(answer["entries"].as_array().is_some_and(|entries| !entries.is_empty()))
    }

    /// Initiates a payment and pays it.
    pub(super) async fn pay(self: Arc<Self>, intent: Intent, reference: usize) -> Result<String, String> {
        let made = self.api.initiate(self.merchant, &format!("order-{reference}"), &intent).await;
        let made = made.map_err(|error| error.kind())?;
        let paid = self.payers.pay(intent.chain, intent.token, made.intermediary_wallet, intent.amount).await;
        paid.map_err(|error| error.to_string())?;
        Ok(made.payment_id.to_string())
    }

    /// Waits until so many were settled and told of to the last.
    pub(super) async fn until_settled(&self, wanted: usize) {
        let since = Instant::now();
        while self.received.lock().whole() < wanted && since.elapsed() < PATIENCE {
            tokio::time::sleep(POLL).await;
        }
    }

    /// What is wrong, if these payments were paid and there are no others.
    pub(super) async fn audit(&self, paid: &[String]) -> anyhow::Result<Vec<String>> {
        let (mut settled, mut uneven, mut listed) = (HashSet::new(), 0, 0);
        let each = |shown: Shown| {
            listed += 1;
            if shown.status == "settled" {
                uneven += usize::from(!shown.is_even());
                settled.insert(shown.payment_id);
            }
        };
        self.api.payments(self.merchant, each).await?;
        let unsound = self.service.unsound().await?;
        let wrong = [
            (paid.iter().filter(|id| !settled.contains(*id)).count(), "paid payments are not settled"),
            (uneven, "payments were settled for something else than what was due"),
            (settled.len().saturating_sub(paid.len()), "payments are settled that nobody paid"),
            (usize::abs_diff(listed, paid.len()), "payments are too many, or too few"),
        ];
        let wrong = wrong.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        Ok(wrong.chain(self.received.lock().wrong(paid)).chain(unsound).collect())
    }
}

#[derive(Deserialize)]
struct Shown {
    payment_id: String,
    status: String,
    amount: String,
    amount_received: String,
    settlement: Option<Settlement>,
    #[serde(default)]
    required_confirmations: Option<u64>,
    #[serde(default)]
    transfers: Vec<Transfer>,
}

#[derive(Deserialize)]
struct Settlement {
    psp_amount: String,
    treasury_fee: String,
}

impl Shown {
    /// Whether it was settled for what was due, which was received.
    fn is_even(&self) -> bool {
        let Some(Settlement { psp_amount, treasury_fee }) = &self.settlement else { return false };
        is_split(&self.amount, &self.amount_received, psp_amount.parse().ok(), treasury_fee.parse().ok())
    }
}

#[derive(Deserialize)]
struct Transfer {
    block_number: u64,
}

/// Whole lives a second.
pub(super) async fn complete(world: &World, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let stage = Stage::set(world, "complete", BLOCK_TIME, |_| {}).await?;
    let (rate, time, ramp) =
        if quick { (RATE_QUICK, time, Duration::ZERO) } else { (COMPLETE_RATE, COMPLETE_TIME.max(time), RAMP) };
    let requests = count(rate, ramp + time);
    let (cpu, since) = (stage.service.cpu_secs()?, Instant::now());
    let intent = |number: usize| Intent::nth(u32::try_from(number).unwrap_or(0), Behaviour::Exact);
    let asked = open_loop(rate, requests, |number| stage.clone().pay(intent(number), number)).await;
    let asking = since.elapsed();
    stage.until_settled(asked.made.len()).await;
    let all = since.elapsed();
    let cpu_us = (stage.service.cpu_secs()? - cpu) * 1e6 / number(asked.made.len().max(1));
    let wrong = stage.audit(&asked.made).await?;

    let received = stage.received.lock();
    // What was settled and told while payments kept coming; in a quick run there is not so much time, and all of it counts.
    let [from, to] = if quick { [Duration::ZERO, all] } else { [ramp, ramp + time] };
    let counted = to.saturating_sub(from);
    let within = received.whole_within(since, [from, to]);
    // A mean could hide that nothing was settled for seconds, and then all of it.
    let parts = if quick { 1 } else { counted.as_secs() / SUSTAINED.as_secs() };
    let part = counted / u32::try_from(parts.max(1)).unwrap_or(1);
    let begin = |place: u64| from + part * u32::try_from(place).unwrap_or(u32::MAX);
    let of_part =
        |place| number(received.whole_within(since, [begin(place), begin(place) + part])) / part.as_secs_f64();
    let slowest = (0..parts.max(1)).map(of_part).fold(f64::INFINITY, f64::min);
    let line = Line::new("complete payments", slowest, "/s", Goal::AtLeast(COMPLETE_GOAL))
        .beside("asked for and paid a second in the same run: more cannot become complete", asked.per_sec())
        .note(format!(
            "in the slowest {:.0} s of {:.0} s from {:.0} s after the first was asked for, while more were asked for; {:.0}/s in \
             all of them: {within} were settled and told",
            part.as_secs_f64(),
            counted.as_secs_f64(),
            from.as_secs_f64(),
            number(within) / counted.as_secs_f64(),
        ))
        .note(format!(
            "{} asked for at {rate:.0}/s on three chains; settled and told {:.1} s after the last was asked for",
            asked.made.len(),
            all.saturating_sub(asking).as_secs_f64(),
        ))
        .note(format!("CPU {cpu_us:.0} µs a payment, the chains' own work included; {} webhooks", received.webhooks))
        .wrong(asked.troubles())
        .wrong(wrong);
    Ok(vec![line])
}

/// From the final block to the first webhook.
pub(super) async fn finality(world: &World, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let stage = Stage::set(world, "finality", BLOCK_TIME, |_| {}).await?;
    let (rate, time) = if quick { (RATE_QUICK, time) } else { (FINALITY_RATE, FINALITY_TIME.max(time)) };
    let client = stage.api.side().clone();
    let post = async |path: &str, body: serde_json::Value| {
        let answer = client.post(&format!("/sandbox/chains/{FINALITY_CHAIN}/{path}"), body.to_string()).await?;
        ensure!(answer.status.is_success(), "{path} answered {}", answer.status);
        let made_in = answer.headers.get("server-timing").map(made_in).transpose()?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
        anyhow::Ok((answer["head"]["number"].as_u64().context("no head was shown")?, made_in))
    };
    post("mining", json!({"paused": true})).await?;
    let blocks: Mutex<HashMap<u64, Instant>> = Mutex::default();
    let requests = count(rate, time);
    let intent = Intent { chain: FINALITY_CHAIN, ..Intent::nth(0, Behaviour::Exact) };
    let asking = open_loop(rate, requests, |number| stage.clone().pay(intent, number));
    let mining = async {
        let mut ticks = tokio::time::interval(BLOCK_TIME);
        loop {
            ticks.tick().await;
            // The service's time begins no later than the block is shown: the chain counts from when it was asked, which is
            // later than this.
            let asked = Instant::now();
            let (number, made_in) = post("mine", json!({"blocks": 1})).await?;
            blocks.lock().insert(number, asked + made_in.context("the chain did not say how long the block took")?);
            if stage.received.lock().whole() >= requests {
                return anyhow::Ok(());
            }
        }
    };
    let asked = async {
        let asked = asking.await;
        stage.until_settled(asked.made.len()).await;
        asked
    };
    tokio::pin!(asked, mining);
    let asked = tokio::select! {
        asked = &mut asked => asked,
        mined = &mut mining => {
            mined?;
            asked.await
        }
    };
    let mut wrong = stage.audit(&asked.made).await?;

    let blocks = std::mem::take(&mut *blocks.lock());
    let (mut final_at, mut chain_waits): (HashMap<String, Instant>, Vec<u64>) = Default::default();
    let each = |shown: Shown| {
        let Some((block, depth)) =
            shown.transfers.first().map(|transfer| transfer.block_number).zip(shown.required_confirmations)
        else {
            return;
        };
        if let Some(at) = blocks.get(&(block + depth - 1)) {
            let wait = blocks.get(&block).map(|mined| at.saturating_duration_since(*mined).as_micros());
            chain_waits.extend(wait.and_then(|micros| u64::try_from(micros).ok()));
            final_at.insert(shown.payment_id, *at);
        }
    };
    stage.api.payments(stage.merchant, each).await?;
    let received = stage.received.lock();
    // Nobody is left out: one whose wait is not known could be the longest.
    let wait = |id: &String| Some(received.confirmed_at(id)?.saturating_duration_since(*final_at.get(id)?).as_micros());
    let waits = asked.made.iter().filter_map(wait).map(|micros| u64::try_from(micros).unwrap_or(u64::MAX));
    let mut waits: Vec<u64> = waits.collect();
    waits.sort_unstable();
    chain_waits.sort_unstable();
    ensure!(!waits.is_empty(), "no payment's final block is known");
    let unknown = asked.made.len() - waits.len();
    if unknown > 0 {
        wrong.push(format!("of {unknown} payments the final block or the webhook is not known"));
    }
    let of = |share| percentile_us(&waits, share) / 1_000.0;
    let (p50_goal, p99_goal) = FINALITY_GOAL_MS;
    let (chains_own, of_chain) =
        ("what the chain itself takes from a transfer's block to its final one, in the same run", |share| {
            percentile_us(&chain_waits, share) / 1_000.0
        });
    let p50 = Line::new("final block to first webhook, p50", of(0.5), "ms", Goal::AtMost(p50_goal))
        .beside(chains_own, of_chain(0.5))
        .note(format!(
            "{} payments at {rate:.0}/s, a block each {} ms: {} made some of them final",
            waits.len(),
            BLOCK_TIME.as_millis(),
            final_at.values().collect::<HashSet<_>>().len(),
        ))
        .note("from when the chain is about to show the block to when its payment's webhook was read, all payments")
        .wrong(asked.troubles())
        .wrong(wrong);
    let p99 = Line::new("final block to first webhook, p99", of(0.99), "ms", Goal::AtMost(p99_goal))
        .beside(chains_own, of_chain(0.99))
        .note(format!("max {:.1} ms", of(1.0)));
    Ok(vec![p50, p99])
}

/// What `Server-Timing` says of a block.
fn made_in(timing: &HeaderValue) -> anyhow::Result<Duration> {
    let millis = timing.to_str()?.strip_prefix("block;dur=").context("a block's time was expected")?;
    Ok(Duration::from_secs_f64(millis.parse::<f64>()? / 1_000.0))
}
