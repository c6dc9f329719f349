//! A hundred thousand live payments: their memory, what they cost others, and how fast they come back after a kill.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::drive::{Outcome, number, open_loop};
use super::psp::Psp;
use super::service::Service;
use super::table::{Goal, Line};
use super::world::World;
use crate::load::client::Client;

/// Live payments of the crowd, and of what it is compared with.
const CROWD: usize = 100_000;
const FEW: usize = 1_000;
/// The same in a quick run.
const CROWD_QUICK: usize = 2_000;
const FEW_QUICK: usize = 100;
/// Connections that make the crowd, and that measure beside it.
const CONNECTIONS: usize = 128;
/// Payments made and cancelled a second while CPU time is counted.
const CHURN_RATE: f64 = 300.0;
/// How long the service is left alone before its memory is read: timers, checkpoints and caches come to rest.
const REST: Duration = Duration::from_secs(3);

const MEMORY_GOAL_KB: f64 = 12.0;
const CPU_GOAL: f64 = 1.25;
const REHYDRATION_GOAL: f64 = 30_000.0;

/// What the tree says of itself.
#[derive(Debug, Deserialize)]
struct Tree {
    payments_live: usize,
}

/// Which of the three are wanted; they share one service.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) memory: bool,
    pub(super) cpu: bool,
    pub(super) rehydration: bool,
}

impl Wanted {
    pub(super) fn is_empty(self) -> bool {
        !(self.memory || self.cpu || self.rehydration)
    }
}

/// Measures what is wanted.
pub(super) async fn measure(world: &World, wanted: Wanted, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let (few, crowd) = if quick { (FEW_QUICK, CROWD_QUICK) } else { (FEW, CROWD) };
    let setup = world.setup("crowd")?;
    let service = Service::sandbox(&setup).await?;
    let psp = Psp::of(&service, CONNECTIONS).await?;
    let empty_bytes = service.resident_bytes()?;

    let mut made = fill(&psp, few).await?;
    let cpu_beside_few = if wanted.cpu { Some(churn(&service, &psp, time).await?) } else { None };
    let since = Instant::now();
    made.extend(fill(&psp, crowd - few).await?);
    let filled = since.elapsed();
    tokio::time::sleep(REST).await;
    let resident_bytes = service.resident_bytes()?;
    let mut wrong = live(&service, crowd).await?;
    let mut lines = Vec::new();
    if wanted.memory {
        let kilobytes = |bytes: u64| number(usize::try_from(bytes).unwrap_or(usize::MAX)) / 1_000.0;
        let each = kilobytes(resident_bytes) / number(crowd);
        lines.push(
            Line::new(format!("memory of a live payment, of {crowd}"), each, "kB", Goal::AtMost(MEMORY_GOAL_KB))
                .note(format!(
                    "resident {:.0} MB, of which {:.0} MB without a payment: the sandbox's chains, caches, code",
                    kilobytes(resident_bytes) / 1_000.0,
                    kilobytes(empty_bytes) / 1_000.0,
                ))
                .note(format!("made over HTTP in {:.1} s", filled.as_secs_f64()))
                .wrong(std::mem::take(&mut wrong)),
        );
    }
    if let Some(few_us) = cpu_beside_few {
        let crowd_us = churn(&service, &psp, time).await?;
        let what = format!("CPU of a payment beside {crowd} live, to beside {few}");
        lines.push(
            Line::new(what, crowd_us / few_us, "×", Goal::AtMost(CPU_GOAL))
                .note(format!("{crowd_us:.0} µs and {few_us:.0} µs: everything that the process uses meanwhile"))
                .note(format!("made and cancelled, {CHURN_RATE:.0} a second"))
                .wrong(std::mem::take(&mut wrong)),
        );
    }
    if wanted.rehydration {
        service.kill();
        let since = Instant::now();
        let service = Service::sandbox(&setup).await?;
        let process = since.elapsed();
        let tree = service.metric("payferry_rehydration_seconds").await?;
        let tree = tree.context("the service does not say how long it took")?;
        wrong.extend(live(&service, crowd).await?);
        let lost = Psp::of(&service, CONNECTIONS).await?.audit_live(&made).await?;
        wrong.extend(lost);
        lines.push(
            Line::new("payments live again after a kill", number(crowd) / tree, "/s", Goal::AtLeast(REHYDRATION_GOAL))
                .note(format!(
                    "{crowd} in {:.2} s from the tree's start until it is ready; {:.2} s from the process's start",
                    tree,
                    process.as_secs_f64(),
                ))
                .wrong(std::mem::take(&mut wrong)),
        );
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(lines)
}

/// Makes so many payments as fast as they are answered.
async fn fill(psp: &Psp, count: usize) -> anyhow::Result<Vec<String>> {
    let left = std::sync::atomic::AtomicUsize::new(count);
    let made = parking_lot::Mutex::new(Vec::with_capacity(count));
    let worker = || async {
        use std::sync::atomic::Ordering::Relaxed;
        while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let id = psp.clone().initiate().await.map_err(anyhow::Error::msg)?;
            made.lock().push(id);
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..CONNECTIONS).map(|_| worker())).await?;
    Ok(made.into_inner())
}

/// Makes and cancels payments at a steady rate; answers the CPU time of each, microseconds.
async fn churn(service: &Service, psp: &Psp, time: Duration) -> anyhow::Result<f64> {
    let requests = super::drive::count(CHURN_RATE, time);
    let ask = |_| {
        let psp = psp.clone();
        async move { psp.clone().cancel(psp.initiate().await?).await }
    };
    // Once to warm up, a tenth as long.
    open_loop(CHURN_RATE, requests.div_ceil(10), ask).await;
    let before = service.cpu_secs()?;
    let outcome: Outcome = open_loop(CHURN_RATE, requests, ask).await;
    let used = service.cpu_secs()? - before;
    let troubles = outcome.troubles();
    ensure!(troubles.is_empty(), "{}", troubles.join("; "));
    Ok(used * 1e6 / number(requests))
}

/// What is wrong if so many payments should be live.
async fn live(service: &Service, wanted: usize) -> anyhow::Result<Vec<String>> {
    let operator = Client::new(&service.ready.operator_url, 1, super::service::CALL_DEADLINE)?;
    let operator = operator.bearer(&service.ready.operator_token)?;
    let answer = operator.get("/ops/actors").await?;
    let tree: Tree = serde_json::from_slice(&answer.body).context("the tree does not show itself")?;
    let live = tree.payments_live;
    Ok(if live == wanted { Vec::new() } else { vec![format!("{live} payments are live, {wanted} should be")] })
}
