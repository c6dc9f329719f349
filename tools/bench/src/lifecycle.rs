//! Payments through their whole lifecycle: initiated, paid by a real transfer, confirmed, settled, webhooks received.
//!
//! Row `finality` measures the time from a payment's final block to its first webhook. For it, the bench mines the
//! chain's blocks one at a time, so that the time of each is known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::HeaderValue;
use parking_lot::Mutex;
use payferry_testkit::audit::audit;
use payferry_testkit::audit::behaviour::{Behaviour, Intent};
use payferry_testkit::audit::findings::{findings, summary, unwanted};
use payferry_testkit::audit::outbound::OutboundNeeds;
use payferry_testkit::audit::record::Record;
use payferry_testkit::audit::session::{Session, receive};
use payferry_testkit::audit::settings::settings;
use payferry_testkit::audit::state::RunState;
use payferry_testkit::payers::Persistence;
use payferry_testkit::psp::Psp;
use payferry_testkit::receiver::Receiver;
use payferry_testkit::service::{ChildSandboxOptions, Service};
use payferry_testkit::wire::{Chain, PaymentId};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::drive::{Outcome, count, open_loop, percentile_us};
use super::env::{BLOCK_TIME, Env};
use super::table::{Goal, TableLine};

/// Payments per second for the latency, and the shortest time of the load: one block makes the payments of half a
/// second final, and the slowest hundredth must contain more than those of one block.
const FINALITY_RATE: f64 = 100.0;
const FINALITY_TIME: Duration = Duration::from_mins(1);
const FINALITY_GOAL_MS: (f64, f64) = (20.0, 100.0);
/// Chain of the payments of `finality`.
const FINALITY_CHAIN: Chain = Chain::Base;
/// Payments per second in a quick run.
pub(super) const RATE_QUICK: f64 = 20.0;
/// Longest time until paid payments are settled and their webhooks arrived.
const PATIENCE: Duration = Duration::from_mins(2);
/// Kind of error of a payment that is not initiated because too many are open.
const NOT_INITIATED: &str = "not initiated: too many payments are open";
const POLL: Duration = Duration::from_millis(20);

/// A service with a run of payments: payers, a webhook receiver and the state of each payment.
pub(super) struct Fixture {
    pub(super) service: Service,
    pub(super) options: ChildSandboxOptions,
    pub(super) session: Session,
    pub(super) receiver: Receiver,
}

impl Fixture {
    pub(super) async fn start(options: ChildSandboxOptions) -> anyhow::Result<Arc<Self>> {
        let service = Service::live_sandbox(&options).await?;
        let psp = Psp::new(&service.ready().api_url, &service.ready().api_key)?;
        let sandbox = psp.sandbox().await?;
        let (state, _late) = RunState::new("bench", sandbox.clock.offset_seconds, settings(&psp).await?.fee_bps);
        let state = Arc::new(state);
        let (receiver, _) = receive(&psp, &state).await?;
        let session = Session::start(psp, sandbox, state, Persistence::Usual, &OutboundNeeds::default()).await?;
        Ok(Arc::new(Self { service, options, session, receiver }))
    }

    /// Initiates a payment and pays it. Returns its id, or the kind of error.
    pub(super) async fn pay(self: Arc<Self>, intent: Intent) -> Result<String, String> {
        let Session { state, .. } = &self.session;
        let number = state.due(intent, Instant::now());
        let made = self.session.initiate(number, &intent).await;
        if let Some(made) = &made {
            self.session.pay(number, &intent, made.intermediary_wallet).await;
        }
        let mut inner = state.read();
        let record = inner.record(number).ok_or("the payment has no record")?;
        match (made, &record.unsent, &record.not_made) {
            (Some(made), None, _) => Ok(made.payment_id.to_string()),
            (_, Some(unsent), _) => Err(unsent.clone()),
            (None, None, why) => Err(why.as_ref().map(|why| why.kind.clone()).unwrap_or_default()),
        }
    }

    /// Pays payments at this rate, and waits until they are settled and their webhooks arrived.
    pub(super) async fn turn(self: &Arc<Self>, rate: f64, payments: usize) -> anyhow::Result<Turn> {
        let (cpu_secs, since) = (self.service.cpu_secs()?, Instant::now());
        let outcome = self.pay_at(rate, payments, u64::MAX).await;
        self.until_settled().await;
        let (took, cpu_secs) = (since.elapsed(), self.service.cpu_secs()? - cpu_secs);
        Ok(Turn { made: outcome.made.len(), took, cpu_secs, failures: outcome.failures() })
    }

    /// Pays payments as [`open_loop`] sends requests, each with another amount, on all chains. Initiates none while more
    /// than `open_max` are open.
    pub(super) async fn pay_at(self: &Arc<Self>, rate: f64, payments: usize, open_max: u64) -> Outcome {
        let before = self.session.state.read().records.len();
        open_loop(rate, payments, |place| {
            let fixture = Arc::clone(self);
            let intent = Intent::nth(u32::try_from(before + place).unwrap_or(0), Behaviour::Exact);
            async move {
                if fixture.session.state.open() > open_max {
                    return Err(NOT_INITIATED.to_owned());
                }
                fixture.pay(intent).await
            }
        })
        .await
    }

    /// Waits until all payments are settled and all of their webhooks arrived, or the patience is over.
    pub(super) async fn until_settled(&self) {
        let since = Instant::now();
        while self.session.state.open() > 0 && since.elapsed() < PATIENCE {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns what is wrong: with a payment, with the chains, with the ledger or with the service.
    pub(super) async fn audit(&self) -> anyhow::Result<Vec<String>> {
        let audit = audit(&self.session, true).await?;
        let found = {
            let inner = self.session.state.read();
            findings(&inner.records, &audit, unwanted(&inner, true))
        };
        Ok(summary(&found).into_iter().chain(self.service.defects().await?).collect())
    }
}

/// Result of payments that were paid until they were settled.
pub(super) struct Turn {
    pub(super) made: usize,
    pub(super) took: Duration,
    pub(super) cpu_secs: f64,
    pub(super) failures: Vec<String>,
}

#[derive(Deserialize)]
struct PaymentView {
    payment_id: PaymentId,
    required_confirmations: Option<u64>,
    transfers: Vec<TransferView>,
}

#[derive(Deserialize)]
struct TransferView {
    block_number: u64,
}

/// Measures the time from the final block to the first webhook.
pub(super) async fn finality(env: &Env, time: Duration, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let fixture = Fixture::start(env.options("finality")?).await?;
    let (rate, time) = if quick { (RATE_QUICK, time) } else { (FINALITY_RATE, FINALITY_TIME.max(time)) };
    let client = fixture.session.psp.side().clone();
    let post = async |path: &str, body: serde_json::Value| {
        let answer = client.post(&format!("/sandbox/chains/{FINALITY_CHAIN}/{path}"), body.to_string()).await?;
        ensure!(answer.status.is_success(), "{path} answered {}", answer.status);
        let made_in = answer.headers.get("server-timing").map(made_in).transpose()?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
        anyhow::Ok((answer["head"]["number"].as_u64().context("the response has no head")?, made_in))
    };
    post("mining", json!({"paused": true})).await?;
    let blocks: Mutex<HashMap<u64, Instant>> = Mutex::default();
    let requests = count(rate, time);
    let intent = Intent { chain: FINALITY_CHAIN, ..Intent::nth(0, Behaviour::Exact) };
    let asking = open_loop(rate, requests, |_| fixture.clone().pay(intent));
    let mining = async {
        let mut ticks = tokio::time::interval(BLOCK_TIME);
        loop {
            ticks.tick().await;
            // The chain measures from the arrival of the request, which is after this moment. So the service's time
            // begins no later than the moment when the chain shows the block.
            let asked = Instant::now();
            let (number, made_in) = post("mine", json!({"blocks": 1})).await?;
            blocks.lock().insert(number, asked + made_in.context("the response has no Server-Timing")?);
            if fixture.session.state.tally.counted().complete >= requests as u64 {
                return anyhow::Ok(());
            }
        }
    };
    let asked = async {
        let asked = asking.await;
        fixture.until_settled().await;
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
    let mut wrong = fixture.audit().await?;

    let blocks = std::mem::take(&mut *blocks.lock());
    let (mut final_at, mut chain_waits): (HashMap<PaymentId, Instant>, Vec<u64>) = Default::default();
    let each = |payment: PaymentView| {
        let Some((block, depth)) =
            payment.transfers.first().map(|transfer| transfer.block_number).zip(payment.required_confirmations)
        else {
            return;
        };
        if let Some(at) = blocks.get(&(block + depth - 1)) {
            let wait = blocks.get(&block).map(|mined| at.saturating_duration_since(*mined).as_micros());
            chain_waits.extend(wait.and_then(|micros| u64::try_from(micros).ok()));
            final_at.insert(payment.payment_id, *at);
        }
    };
    let Session { psp, merchant, state, .. } = &fixture.session;
    psp.payments(&format!("merchant_id={merchant}"), each).await?;
    // Every payment counts: one whose wait is unknown could be the longest.
    let wait = |record: &Record| {
        let final_at = final_at.get(&record.id()?)?;
        Some(record.confirmation_received?.saturating_duration_since(*final_at).as_micros())
    };
    let mut waits: Vec<u64> =
        state.read().records.iter().filter_map(wait).map(|micros| u64::try_from(micros).unwrap_or(u64::MAX)).collect();
    waits.sort_unstable();
    chain_waits.sort_unstable();
    ensure!(!waits.is_empty(), "the final block of no payment is known");
    let unknown = asked.made.len() - waits.len();
    if unknown > 0 {
        wrong.push(format!("the final block or the webhook of {unknown} payments is unknown"));
    }
    let of = |share| percentile_us(&waits, share) / 1_000.0;
    let (p50_goal, p99_goal) = FINALITY_GOAL_MS;
    let (chains_own, of_chain) =
        ("time of the chain from a transfer's block to its final block, in the same run", |share| {
            percentile_us(&chain_waits, share) / 1_000.0
        });
    let (block_ms, blocks) = (BLOCK_TIME.as_millis(), final_at.values().collect::<HashSet<_>>().len());
    let p50 = TableLine::new("final block to first webhook, p50", of(0.5), "ms", Goal::AtMost(p50_goal))
        .beside(chains_own, of_chain(0.5))
        .note(format!(
            "{} payments at {rate:.0}/s, a block every {block_ms} ms: {blocks} blocks made some of them final",
            waits.len(),
        ))
        .note("from just before the chain shows the block until the payment's webhook is read; all payments")
        .wrong(asked.failures())
        .wrong(wrong);
    let p99 = TableLine::new("final block to first webhook, p99", of(0.99), "ms", Goal::AtMost(p99_goal))
        .beside(chains_own, of_chain(0.99))
        .note(format!("max {:.1} ms", of(1.0)));
    Ok(vec![p50, p99])
}

/// Returns the time that a block took, from the header `Server-Timing`.
fn made_in(timing: &HeaderValue) -> anyhow::Result<Duration> {
    let millis = timing.to_str()?.strip_prefix("block;dur=").context("the header Server-Timing has no `block;dur=`")?;
    Ok(Duration::from_secs_f64(millis.parse::<f64>()? / 1_000.0))
}
