//! A hundred thousand live payments: their memory, the operator's view of them, what they cost others, and how fast they
//! come back after a kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::drive::{count, number, open_loop};
use super::life::{BLOCK_TIME, Stage};
use super::psp::Psp;
use super::rows::read_live;
use super::service::Service;
use super::table::{Goal, Line};
use super::world::World;
use super::{Row, pages};
use crate::load::behaviour::{Behaviour, Intent};
use crate::load::client::Client;

/// What is measured beside one crowd.
pub(super) const ROWS: [Row; 4] = [Row::Memory, Row::Pages, Row::Cpu, Row::Rehydration];

/// Live payments of the crowd, and of what it is compared with.
const CROWD: usize = 100_000;
const FEW: usize = 1_000;
/// The same in a quick run.
const CROWD_QUICK: usize = 2_000;
const FEW_QUICK: usize = 100;
/// Connections that make the crowd, and that measure beside it.
const CONNECTIONS: usize = 128;
/// Whole lives that begin in a second while CPU time is counted; in a quick run.
const LIVES_RATE: f64 = 100.0;
const LIVES_RATE_QUICK: f64 = 20.0;
/// How long the service is left alone before its memory is read: timers, checkpoints and caches come to rest; in a quick
/// run.
const REST: Duration = Duration::from_secs(3);
const REST_QUICK: Duration = Duration::from_millis(500);
/// How long payments that are over may take to leave.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

const MEMORY_GOAL_KB: f64 = 12.0;
const CPU_GOAL: f64 = 1.25;
const REHYDRATION_GOAL: f64 = 30_000.0;

/// What the tree says of itself.
#[derive(Debug, Deserialize)]
struct Tree {
    payments_live: usize,
}

/// Measures those of [`ROWS`] that are wanted.
pub(super) async fn measure(world: &World, wanted: &[Row], time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let (few, crowd, rate, rest) =
        if quick { (FEW_QUICK, CROWD_QUICK, LIVES_RATE_QUICK, REST_QUICK) } else { (FEW, CROWD, LIVES_RATE, REST) };
    let stage = Stage::set(world, "crowd", BLOCK_TIME, |_| {}).await?;
    let psp = Psp::of(&stage.service, CONNECTIONS).await?;
    let empty_bytes = stage.service.resident_bytes()?;

    let mut lives = Lives { stage: &stage, rate, time, rest, over: Vec::new() };
    let mut made = fill(&psp, few).await?;
    let beside_few = if wanted.contains(&Row::Cpu) { Some(lives.cpu(few).await?) } else { None };
    let since = Instant::now();
    made.extend(fill(&psp, crowd - few).await?);
    let filled = since.elapsed();
    tokio::time::sleep(rest).await;
    let resident_bytes = stage.service.resident_bytes()?;
    let mut wrong = live(&stage.service, crowd).await?;
    let mut lines = Vec::new();
    if wanted.contains(&Row::Memory) {
        let line = memory(&stage, crowd, [empty_bytes, resident_bytes]).await?;
        let line = line.note(format!("made over HTTP in {:.1} s", filled.as_secs_f64()));
        lines.push(line.wrong(std::mem::take(&mut wrong)));
    }
    if wanted.contains(&Row::Pages) {
        lines.push(pages::measure(&stage.service, crowd).await?.wrong(std::mem::take(&mut wrong)));
    }
    if let Some(line) = lines.last_mut() {
        // Not before the pages are read: it reads one of them.
        line.wrong.extend(stage.service.unsound().await?);
    }
    if let Some(beside_few) = beside_few {
        let beside_crowd = lives.cpu(crowd).await?;
        wrong.extend(stage.audit(&lives.over).await?);
        // Without what the process uses even if nobody asks anything of it and few are live: that would hide what grows.
        let of_payment = |cpu: &Cpu| cpu.each_us - beside_few.idle_us;
        lines.push(
            Line::new(format!("CPU of a payment beside {crowd} live"), of_payment(&beside_crowd), "µs", Goal::None)
                .beside("of a payment beside few live ones, in the same run", of_payment(&beside_few))
                .ratio_goal(Goal::AtMost(CPU_GOAL))
                .note(format!(
                    "beside {few}: {:.0} µs; everything that the process uses, its chains included, but for the {:.0} µs that it \
                     uses meanwhile without them",
                    of_payment(&beside_few),
                    beside_few.idle_us,
                ))
                .note(format!(
                    "left alone it uses {:.1} ms a second beside {crowd} and {:.1} ms beside {few}",
                    beside_crowd.idle_ms_a_sec, beside_few.idle_ms_a_sec,
                ))
                .note(format!(
                    "whole lives, {:.0} a second: initiated, paid, confirmed, settled and told; {} in all",
                    lives.rate,
                    lives.over.len(),
                ))
                .wrong(std::mem::take(&mut wrong)),
        );
    }
    if wanted.contains(&Row::Rehydration) {
        let stage = Arc::into_inner(stage).context("somebody still uses the service")?;
        wrong.extend(stage.service.unsound().await?);
        stage.service.kill();
        let since = Instant::now();
        let service = Service::sandbox(&stage.setup).await?;
        let process = since.elapsed();
        wrong.extend(live(&service, crowd).await?);
        wrong.extend(Psp::of(&service, CONNECTIONS).await?.audit_live(&made).await?);
        let tree = service.metric("payferry_rehydration_seconds").await?;
        let tree = tree.context("the service does not say how long it took")?;
        wrong.extend(service.unsound().await?);
        service.kill();
        let bare = read_live(&stage.setup.folder).await?;
        ensure!(bare.count == crowd, "{} rows of live payments were read, {crowd} should be there", bare.count);
        lines.push(
            Line::new("payments live again after a kill", number(crowd) / tree, "/s", Goal::AtLeast(REHYDRATION_GOAL))
                .beside(
                    "the same rows read from the same database, and nothing made of them",
                    number(crowd) / bare.took.as_secs_f64(),
                )
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

/// What a live payment takes, of a process that holds so much without one and with all.
async fn memory(stage: &Stage, crowd: usize, [empty, all]: [u64; 2]) -> anyhow::Result<Line> {
    let kilobytes = |bytes: u64| number(usize::try_from(bytes).unwrap_or(usize::MAX)) / 1_000.0;
    let each = kilobytes(all) / number(crowd);
    let rows = read_live(&stage.setup.folder).await?;
    let what = format!("memory of a live payment, of {crowd}");
    Ok(Line::new(what, each, "kB", Goal::AtMost(MEMORY_GOAL_KB))
        .beside(
            "its state alone, as the database keeps it",
            number(rows.state_bytes) / 1_000.0 / number(rows.count.max(1)),
        )
        .note(format!(
            "resident {:.0} MB, of which {:.0} MB without a payment: the sandbox's chains, caches, code",
            kilobytes(all) / 1_000.0,
            kilobytes(empty) / 1_000.0,
        )))
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

/// Payments that live whole lives beside the crowd.
struct Lives<'a> {
    stage: &'a Arc<Stage>,
    /// So many begin in a second, for so long.
    rate: f64,
    time: Duration,
    /// How long the service is left alone to see what it uses by itself.
    rest: Duration,
    /// Those that were asked for and paid so far.
    over: Vec<String>,
}

/// CPU time that the service used while payments lived.
struct Cpu {
    /// For each of them, microseconds.
    each_us: f64,
    /// How much of that the service would have used without them.
    idle_us: f64,
    /// What it uses in a second in which nothing is asked of it.
    idle_ms_a_sec: f64,
}

impl Lives<'_> {
    /// Measures beside so many live ones.
    async fn cpu(&mut self, beside: usize) -> anyhow::Result<Cpu> {
        let service = &self.stage.service;
        let lives = count(self.rate, self.time);
        // Once to warm up, a tenth as long.
        self.live(lives.div_ceil(10)).await?;
        until_live(service, beside).await?;
        let before = service.cpu_secs()?;
        tokio::time::sleep(self.rest).await;
        let idle = (service.cpu_secs()? - before) / self.rest.as_secs_f64();
        let (before, since) = (service.cpu_secs()?, Instant::now());
        self.live(lives).await?;
        let (used, took) = (service.cpu_secs()? - before, since.elapsed());
        until_live(service, beside).await?;
        let each_us = |secs: f64| secs * 1e6 / number(lives);
        Ok(Cpu { each_us: each_us(used), idle_us: each_us(idle * took.as_secs_f64()), idle_ms_a_sec: idle * 1e3 })
    }

    /// Has so many begin, and waits until they are settled and told.
    async fn live(&mut self, lives: usize) -> anyhow::Result<()> {
        let before = self.over.len();
        let asked = open_loop(self.rate, lives, |place| {
            let intent = Intent::nth(u32::try_from(before + place).unwrap_or(0), Behaviour::Exact);
            self.stage.clone().pay(intent, before + place)
        })
        .await;
        let troubles = asked.troubles();
        ensure!(troubles.is_empty(), "{}", troubles.join("; "));
        self.over.extend(asked.made);
        self.stage.until_settled(self.over.len()).await;
        Ok(())
    }
}

/// Waits until so many payments are live: of those that are over the last webhooks may be on their way.
async fn until_live(service: &Service, wanted: usize) -> anyhow::Result<()> {
    let since = Instant::now();
    loop {
        let wrong = live(service, wanted).await?;
        if wrong.is_empty() {
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "{}", wrong.join("; "));
        tokio::time::sleep(POLL).await;
    }
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
