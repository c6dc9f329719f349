//! Rows that need 100,000 live payments: their memory, the operator's pages, their cost for others, and how fast they
//! are live again after a kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use axum::http::StatusCode;
use futures::future::try_join_all;
use payferry_entities::Database;
use payferry_testkit::client::Client;
use payferry_testkit::service::{Ready, Service};
use sea_orm::{ConnectionTrait, Statement};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::drive::{number, percentile_us, repeat};
use super::env::Env;
use super::lifecycle::Fixture;
use super::psp::BenchPsp;
use super::table::{Goal, TableLine};
use super::{Row, beside};

/// Rows that share the live payments.
pub(super) const ROWS: [Row; 4] = [Row::Memory, Row::Pages, Row::Cpu, Row::Rehydration];

/// Live payments with which many (`--live`) are compared.
const FEW: usize = 1_000;
/// The same in a quick run.
const FEW_QUICK: usize = 100;
pub(super) const CONNECTIONS: usize = 128;
/// Time without load before memory or idle CPU time is read: timers, checkpoints and caches become idle.
pub(super) const REST: Duration = Duration::from_secs(3);
pub(super) const REST_QUICK: Duration = Duration::from_millis(500);
/// Time after which the actors of payments that only wait have left.
const LEAVES_AFTER: Duration = Duration::from_secs(65);
/// Longest wait until the actors of finished payments have stopped.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

const MEMORY_GOAL_KB: f64 = 6.0;
const REHYDRATION_GOAL: f64 = 30_000.0;

/// Rows of a page, as a shard reads them at its start.
const ROWS_A_PAGE: usize = 1_000;
/// Parts of the 256 logical shards. They are read concurrently, as far as there are connections.
const PARTS: i64 = 8;
const SHARDS_OF_PART: i64 = 256 / PARTS;
const LIVE: &str = "SELECT id, version, state FROM payments WHERE live AND id > $1 AND shard >= $2 AND shard <= $3 \
    ORDER BY id LIMIT $4";

/// The pages, and a text that each must contain.
const PAGES: [(&str, &str); 5] = [
    ("/ops", "<main"),
    ("/ops/view/shards/0", "/ops/view/payments/pay_"),
    ("/ops/view/stuck", "<main"),
    ("/ops/view/customers", "<main"),
    ("/metrics", "payferry_"),
];
/// A route of the same listener that responds at once.
const BARE: (&str, &str) = ("/healthz", "ok");
/// Sequential reads of each page. The first one counts, too.
const READS: usize = 20;
/// Goal of the slowest read.
const PAGES_GOAL_MS: f64 = 50.0;
/// Interval at which an operator reads each page.
const PAGE_EVERY: Duration = Duration::from_secs(5);
/// Goal of the CPU time of the console and the history, of all cores.
const CONSOLE_GOAL_PERCENT: f64 = 3.0;

/// The operator's view of the supervision tree.
#[derive(Debug, Deserialize)]
struct TreeView {
    payments_live: usize,
}

pub(super) async fn measure(
    env: &Env,
    wanted: &[Row],
    many: usize,
    time: Duration,
    quick: bool,
) -> anyhow::Result<Vec<TableLine>> {
    let (few, rest) = if quick { (FEW_QUICK, REST_QUICK) } else { (FEW, LEAVES_AFTER) };
    let fixture = Fixture::start(env.options("many")?).await?;
    let psp = BenchPsp::of(&fixture.service, CONNECTIONS).await?;
    let empty_bytes = fixture.service.usage()?.resident_bytes;

    let since = Instant::now();
    let made = fill(&psp, many).await?;
    let filled = since.elapsed();
    tokio::time::sleep(rest).await;
    let resident_bytes = fixture.service.usage()?.resident_bytes;
    let mut wrong = wrong_live(&fixture.service, many).await?;
    let mut lines = Vec::new();
    if wanted.contains(&Row::Memory) {
        let line = memory(&fixture, many, [empty_bytes, resident_bytes]).await?;
        let line = line.note(format!("initiated over HTTP in {:.1} s", filled.as_secs_f64()));
        lines.push(line.wrong(std::mem::take(&mut wrong)));
    }
    if wanted.contains(&Row::Pages) {
        lines.push(pages(&fixture.service, many).await?.wrong(std::mem::take(&mut wrong)));
        lines.push(console(&fixture.service, many, time).await?);
    }
    if let Some(line) = lines.last_mut() {
        // After the pages, because this reads one of them.
        line.wrong.extend(fixture.service.defects().await?);
    }
    if wanted.contains(&Row::Cpu) {
        let line = beside::measure(env, &fixture, [few, many], time, quick).await?;
        lines.push(line.wrong(std::mem::take(&mut wrong)));
    }
    if wanted.contains(&Row::Rehydration) {
        let Fixture { service, options, .. } = Arc::into_inner(fixture).context("the service is still in use")?;
        wrong.extend(service.defects().await?);
        service.kill();
        let since = Instant::now();
        let service = Service::live_sandbox(&options).await?;
        let process = since.elapsed();
        wrong.extend(wrong_live(&service, many).await?);
        wrong.extend(BenchPsp::of(&service, CONNECTIONS).await?.audit_live(&made).await?);
        let tree = service.metric("payferry_rehydration_seconds").await?;
        let tree = tree.context("the metric payferry_rehydration_seconds is missing")?;
        wrong.extend(service.defects().await?);
        service.kill();
        let bare = read_live(&Env::database_url(&options)?).await?;
        ensure!(bare.count == many, "{} rows of live payments were read, {many} expected", bare.count);
        lines.push(
            TableLine::new("payments live again after a kill", number(many) / tree, "/s", Goal::AtLeast(REHYDRATION_GOAL))
                .beside(
                    "the same rows read from the same database, without actors",
                    number(many) / bare.took.as_secs_f64(),
                )
                .note(format!(
                    "{many} in {tree:.2} s from the start of the supervision tree until it is ready; {:.2} s from the start of \
                     the process",
                    process.as_secs_f64(),
                ))
                .wrong(std::mem::take(&mut wrong)),
        );
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(lines)
}

/// Memory of a live payment, from the memory of the process without payments and with all of them.
async fn memory(fixture: &Fixture, many: usize, [empty, all]: [u64; 2]) -> anyhow::Result<TableLine> {
    let kilobytes = |bytes: u64| number(usize::try_from(bytes).unwrap_or(usize::MAX)) / 1_000.0;
    let each = kilobytes(all) / number(many);
    let [all, empty] = [all, empty].map(|bytes| kilobytes(bytes) / 1_000.0);
    let rows = read_live(&Env::database_url(&fixture.options)?).await?;
    let what = format!("memory of a live payment, of {many}");
    Ok(TableLine::new(what, each, "kB", Goal::AtMost(MEMORY_GOAL_KB))
        .beside(
            "its state alone, as stored in the database",
            number(rows.state_bytes) / 1_000.0 / number(rows.count.max(1)),
        )
        .note(format!(
            "resident {all:.0} MB, of which {empty:.0} MB without a payment: the sandbox's chains, caches, code",
        )))
}

/// Initiates `count` payments as fast as the service responds.
pub(super) async fn fill(psp: &BenchPsp, count: usize) -> anyhow::Result<Vec<String>> {
    repeat(CONNECTIONS, count, || psp.clone().initiate_patiently()).await
}

/// Waits until `wanted` payments are live. The last webhooks of finished payments may still be in progress.
pub(super) async fn until_live(service: &Service, wanted: usize) -> anyhow::Result<()> {
    let since = Instant::now();
    loop {
        let wrong = wrong_live(service, wanted).await?;
        if wrong.is_empty() {
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "{}", wrong.join("; "));
        tokio::time::sleep(POLL).await;
    }
}

/// Returns what is wrong if `wanted` payments must be live.
async fn wrong_live(service: &Service, wanted: usize) -> anyhow::Result<Vec<String>> {
    let response = service.operator()?.get("/ops/actors").await?;
    let tree: TreeView = serde_json::from_slice(&response.body).context("GET /ops/actors cannot be read")?;
    let live = tree.payments_live;
    Ok(if live == wanted { Vec::new() } else { vec![format!("{live} payments are live, {wanted} expected")] })
}

/// Durations of the reads of one page, and its length.
struct Reads {
    sorted_us: Vec<u64>,
    bytes: usize,
}

impl Reads {
    async fn of(operator: &Client, (path, holds): (&str, &str)) -> anyhow::Result<Self> {
        let (mut sorted_us, mut bytes) = (Vec::with_capacity(READS), 0);
        for _ in 0..READS {
            let since = Instant::now();
            let answer = operator.get(path).await?;
            sorted_us.push(u64::try_from(since.elapsed().as_micros())?);
            ensure!(answer.status == StatusCode::OK, "{path} answered {}", answer.status);
            ensure!(String::from_utf8_lossy(&answer.body).contains(holds), "{path} does not contain {holds}");
            bytes = answer.body.len();
        }
        sorted_us.sort_unstable();
        Ok(Self { sorted_us, bytes })
    }

    fn slowest_ms(&self) -> f64 {
        percentile_us(&self.sorted_us, 1.0) / 1_000.0
    }

    fn middle_ms(&self) -> f64 {
        percentile_us(&self.sorted_us, 0.5) / 1_000.0
    }
}

/// Measures the slowest of the operator's pages beside `live` payments.
async fn pages(service: &Service, live: usize) -> anyhow::Result<TableLine> {
    let operator = service.operator()?;
    let bare = Reads::of(&operator, BARE).await?;
    let (mut slowest, mut notes) = (0.0_f64, Vec::new());
    for page in PAGES {
        let reads = Reads::of(&operator, page).await?;
        slowest = slowest.max(reads.slowest_ms());
        let (bytes, middle, slowest_read) = (reads.bytes, reads.middle_ms(), reads.slowest_ms());
        notes.push(format!("{}: {bytes} bytes, {middle:.1} ms, the slowest of {READS} {slowest_read:.1} ms", page.0));
    }
    let line = TableLine::new(
        format!("the operator's slowest page beside {live} live"),
        slowest,
        "ms",
        Goal::AtMost(PAGES_GOAL_MS),
    )
    .beside("the slowest of as many reads of /healthz on the same listener", bare.slowest_ms());
    Ok(notes.into_iter().fold(line, TableLine::note))
}

/// Measures the CPU time of an idle service beside `live` payments while an operator watches it. That of the history and of
/// the console is a part of it, and so is the throughput that they cost.
async fn console(service: &Service, live: usize, time: Duration) -> anyhow::Result<TableLine> {
    let cores = number(std::thread::available_parallelism()?.get());
    let percent = |cpu_secs: f64, took: Duration| 100.0 * cpu_secs / took.as_secs_f64() / cores;
    let (before, since) = (service.cpu_secs()?, Instant::now());
    tokio::time::sleep(time).await;
    let alone = percent(service.cpu_secs()? - before, since.elapsed());
    let resident = service.usage()?.resident_bytes;

    let operator = service.operator()?;
    let mut events = events(service).await?;
    let (before, since) = (service.cpu_secs()?, Instant::now());
    let mut read = 0;
    while since.elapsed() < time {
        let mut buffer = [0; 4 * 1024];
        let until = tokio::time::Instant::now() + PAGE_EVERY;
        while let Ok(bytes) = tokio::time::timeout_at(until, events.read(&mut buffer)).await {
            let bytes = bytes?;
            ensure!(bytes > 0, "the events of the console ended");
            read += bytes;
        }
        for (path, holds) in PAGES {
            let answer = operator.get(path).await?;
            ensure!(answer.status == StatusCode::OK, "{path} answered {}", answer.status);
            ensure!(String::from_utf8_lossy(&answer.body).contains(holds), "{path} does not contain {holds}");
        }
    }
    let watched = percent(service.cpu_secs()? - before, since.elapsed());
    ensure!(read > 0, "the console was sent no event");
    let grown = service.usage()?.resident_bytes.saturating_sub(resident);
    let what = format!("CPU of the idle service and an open console beside {live} live, of all cores");
    Ok(TableLine::new(what, watched, "%", Goal::AtMost(CONSOLE_GOAL_PERCENT))
        .beside("the same service, with its history and its chains, without a console", alone)
        .note(format!(
            "events once a second ({read} bytes), and the {} pages every {} s; memory grew by {:.1} MB",
            PAGES.len(),
            PAGE_EVERY.as_secs(),
            number(usize::try_from(grown)?) / 1e6,
        )))
}

/// Connection on which the service sends the events of the console.
async fn events(service: &Service) -> anyhow::Result<TcpStream> {
    let Ready { operator_url, operator_token, .. } = service.ready();
    let address = operator_url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).await?;
    let request =
        format!("GET /ops/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {operator_token}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    Ok(connection)
}

#[derive(Debug, Default)]
struct LiveRows {
    count: usize,
    /// Size of the stored states.
    state_bytes: usize,
    took: Duration,
}

/// Bare read: the same database and the same pages as the service reads, without actors. Reads all rows of live payments in a SQLite file, whether a service runs on it or not.
async fn read_live(url: &str) -> anyhow::Result<LiveRows> {
    let database = Database::open(url).await?;
    let since = Instant::now();
    let parts = try_join_all((0..PARTS).map(|part| read_part(&database, part))).await?;
    let took = since.elapsed();
    database.close().await?;
    let (count, state_bytes) = parts.into_iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    Ok(LiveRows { count, state_bytes, took })
}

async fn read_part(database: &Database, part: i64) -> anyhow::Result<(usize, usize)> {
    let (mut count, mut bytes, mut after) = (0, 0, String::new());
    loop {
        let first = part * SHARDS_OF_PART;
        let values = [
            after.clone().into(),
            first.into(),
            (first + SHARDS_OF_PART - 1).into(),
            i64::try_from(ROWS_A_PAGE)?.into(),
        ];
        let page = Statement::from_sql_and_values(database.backend(), LIVE, values);
        let rows = database.reader().query_all_raw(page).await?;
        for row in &rows {
            let _version: i64 = row.try_get_by_index(1)?;
            bytes += row.try_get_by_index::<String>(2)?.len();
        }
        count += rows.len();
        match rows.last() {
            Some(last) => after = last.try_get_by_index(0)?,
            None => return Ok((count, bytes)),
        }
    }
}
