//! A hundred thousand live payments: their memory, the operator's view of them, what they cost others, and how fast they
//! come back after a kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::drive::number;
use super::life::{BLOCK_TIME, Stage};
use super::psp::Psp;
use super::rows::read_live;
use super::service::Service;
use super::table::{Goal, Line};
use super::world::World;
use super::{Row, beside, pages};
use payferry_testkit::client::Client;

/// What is measured beside one crowd.
pub(super) const ROWS: [Row; 4] = [Row::Memory, Row::Pages, Row::Cpu, Row::Rehydration];

/// Live payments of the crowd, and of what it is compared with.
const CROWD: usize = 100_000;
const FEW: usize = 1_000;
/// The same in a quick run.
const CROWD_QUICK: usize = 2_000;
const FEW_QUICK: usize = 100;
/// Connections that make the crowd, and that measure beside it.
pub(super) const CONNECTIONS: usize = 128;
/// How long a service is left alone for its memory or its idle time to be read: timers, checkpoints and caches come to rest;
/// in a quick run.
pub(super) const REST: Duration = Duration::from_secs(3);
pub(super) const REST_QUICK: Duration = Duration::from_millis(500);
/// How long payments that are over may take to leave.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

const MEMORY_GOAL_KB: f64 = 12.0;
const REHYDRATION_GOAL: f64 = 30_000.0;

/// What the tree says of itself.
#[derive(Debug, Deserialize)]
struct Tree {
    payments_live: usize,
}

/// Measures those of [`ROWS`] that are wanted.
pub(super) async fn measure(world: &World, wanted: &[Row], time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let (few, crowd, rest) = if quick { (FEW_QUICK, CROWD_QUICK, REST_QUICK) } else { (FEW, CROWD, REST) };
    let stage = Stage::set(world, "crowd", BLOCK_TIME, |_| {}).await?;
    let psp = Psp::of(&stage.service, CONNECTIONS).await?;
    let empty_bytes = stage.service.resident_bytes()?;

    let since = Instant::now();
    let made = fill(&psp, crowd).await?;
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
    if wanted.contains(&Row::Cpu) {
        let line = beside::measure(world, &stage, [few, crowd], time, quick).await?;
        lines.push(line.wrong(std::mem::take(&mut wrong)));
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
pub(super) async fn fill(psp: &Psp, count: usize) -> anyhow::Result<Vec<String>> {
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

/// Waits until so many payments are live: of those that are over the last webhooks may be on their way.
pub(super) async fn until_live(service: &Service, wanted: usize) -> anyhow::Result<()> {
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
