//! Payments initiated a second over HTTP, each one on disk before its answer.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::drive::{Outcome, closed_loop, count, number, open_loop};
use super::hold::turns;
use super::host::Host;
use super::psp::Psp;
use super::service::{SandboxSetup, Service, cpu_secs_of};
use super::table::{Goal, Line};
use super::world::{Durability, Engine, LOG_MIB, World};
use crate::sandbox::database_file;

/// Connections of the load, as of the measurements that the goals were set against.
const CONNECTIONS: usize = 128;
/// Connections that a steady rate may use, so that a short pause of the service does not become one of the load.
const CONNECTIONS_STEADY: usize = 256;
/// The rate at which latencies count.
const SQLITE_RATE: f64 = 5_000.0;
const POSTGRES_RATE: f64 = 4_000.0;
/// The rate of a quick run, which need not be kept.
const RATE_QUICK: f64 = 200.0;
/// The latency that 99 of 100 keep at that rate.
const P99_GOAL_MS: f64 = 50.0;
/// The share of the bound that is wanted.
const BOUND_SHARE_LEAST: f64 = 0.3;
/// How often a steady rate is kept, of the bound and of the service in turns. A single pause of the machine is the slowest
/// hundredth of one of them; the middle one counts.
const STEADY_TIMES: usize = 3;
/// The databases that are made on a server.
const SERVED: &str = "initiate";
const BOUND: &str = "bound";
/// Both.
pub(super) const DATABASES: [&str; 2] = [SERVED, BOUND];
/// Turns that the bound and the service take as closed loops, at least: the disk is not equally fast all the time, and both
/// are to have their share of it. Whoever has none is held.
const TURNS: u32 = 3;
/// How long a service is warmed up, by a closed loop and before a steady rate.
const WARM_UP: Duration = Duration::from_secs(1);

/// One of the two that take turns, and what came of them.
struct Side {
    service: Service,
    psp: Psp,
    /// The same PSP, for a steady rate.
    steady_psp: Psp,
    warm: Outcome,
    closed: Outcome,
    steady: Vec<Steady>,
    /// CPU time that the service and its load used in the turns that are closed loops.
    cpu_secs: f64,
    load_secs: f64,
}

/// A steady rate that was kept.
struct Steady {
    outcome: Outcome,
    /// What the machine's host took meanwhile.
    host: Option<String>,
}

impl Side {
    /// Warms the service up.
    async fn warm(service: Service, [psp, steady_psp]: [Psp; 2]) -> Self {
        let warm = closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
        let (closed, steady) = (Outcome::default(), Vec::new());
        Self { service, psp, steady_psp, warm, closed, steady, cpu_secs: 0.0, load_secs: 0.0 }
    }

    /// In one piece: checkpoints and the disk's own writing are a part of it, and a beginning after each turn is not. Nor is
    /// the opening of connections, all at once: the rate is kept for a moment before it counts.
    async fn steady_run(&mut self, rate: f64, time: Duration) {
        let warm = open_loop(rate, count(rate, WARM_UP), |_| self.steady_psp.clone().initiate()).await;
        self.warm.extend(warm);
        let before = Host::now();
        let outcome = open_loop(rate, count(rate, time), |_| self.steady_psp.clone().initiate()).await;
        self.steady.push(Steady { outcome, host: Host::share_since(before) });
    }

    /// The times at which a steady rate was kept, by their p99.
    fn steady_by_p99(&self) -> Vec<&Steady> {
        let mut sorted: Vec<&Steady> = self.steady.iter().collect();
        sorted.sort_by(|one, other| one.p99_ms().total_cmp(&other.p99_ms()));
        sorted
    }

    async fn closed_turn(&mut self, time: Duration) -> anyhow::Result<()> {
        let before = [self.service.cpu_secs()?, cpu_secs_of(std::process::id())?];
        let outcome = closed_loop(CONNECTIONS, time, || self.psp.clone().initiate()).await;
        self.closed.extend(outcome);
        self.cpu_secs += self.service.cpu_secs()? - before[0];
        self.load_secs += cpu_secs_of(std::process::id())? - before[1];
        Ok(())
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        [&self.warm, &self.closed].into_iter().chain(self.steady.iter().map(|steady| &steady.outcome))
    }

    /// How many were acknowledged.
    fn acknowledged(&self) -> usize {
        self.outcomes().map(|outcome| outcome.made.len()).sum()
    }

    /// Reads everything back that was acknowledged.
    async fn audit(&self) -> anyhow::Result<Vec<String>> {
        let acknowledged: Vec<String> = self.outcomes().flat_map(|outcome| outcome.made.iter().cloned()).collect();
        let failed: u64 = self.outcomes().flat_map(|outcome| outcome.errors.values()).sum();
        self.psp.audit(&acknowledged, usize::try_from(failed).unwrap_or(usize::MAX)).await
    }
}

/// Measures on `engine`, for `time` each.
pub(super) async fn measure(world: &World, engine: &Engine, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let goal = if engine.is_postgres() { POSTGRES_RATE } else { SQLITE_RATE };
    let rate = if quick { RATE_QUICK } else { goal };
    let log_files = if quick { None } else { engine.make_log_files(LOG_MIB).await? };
    let mut bare = bound(world, engine).await?;
    let (mut side, database_url) = served(world, engine).await?;
    let (turns, turn) = turns(time, TURNS);
    for _ in 0..turns {
        for is_bare in [true, false] {
            let (side, other) = if is_bare { (&mut bare, &side) } else { (&mut side, &bare) };
            let held = other.service.hold().await?;
            side.closed_turn(turn).await?;
            held.release().await;
        }
    }
    for _ in 0..STEADY_TIMES {
        settle_disk().await?;
        // Longer than a service may be held: it has nothing to do while the bound is measured.
        bare.steady_run(rate, time).await;
        settle_disk().await?;
        let held = bare.service.hold().await?;
        side.steady_run(rate, time).await;
        held.release().await;
    }
    let mut wrong = side.audit().await?;
    wrong.extend(side.service.unsound().await?);
    let durability = Durability::of(&database_url).await?;
    let made = number(side.closed.made.len()).max(1.0);
    let (cpu_us, load_us) = (side.cpu_secs * 1e6 / made, side.load_secs * 1e6 / made);

    let name = engine.name();
    let what = format!("payments initiated, {name}");
    let closed = &side.closed;
    let mut throughput = Line::new(what, closed.per_sec(), "/s", Goal::AtLeast(goal))
        .beside("axum and one grouped writer, two rows a payment, same disk and load", bare.closed.per_sec())
        .ratio_goal(Goal::AtLeast(BOUND_SHARE_LEAST))
        .note(format!(
            "{CONNECTIONS} connections that ask again at once; bound and service take {turns} turns each, who has none is held"
        ))
        .note(format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; of the bound p99 {:.1} ms",
            closed.percentile_ms(0.5),
            closed.percentile_ms(0.99),
            closed.percentile_ms(1.0),
            bare.closed.percentile_ms(0.99),
        ))
        .note(format!("CPU {cpu_us:.0} µs a payment, and {load_us:.0} µs of the load beside it"))
        .note(durability.told())
        .unless(durability.lacks())
        .wrong(closed.troubles())
        .wrong(of_bound(&bare.closed));
    if let Some(log_files) = log_files {
        throughput = throughput.note(log_files);
    }
    let (by_p99, bare_by_p99) = (side.steady_by_p99(), bare.steady_by_p99());
    let (steady, bare_steady) = (by_p99[by_p99.len() / 2], bare_by_p99[bare_by_p99.len() / 2]);
    let what = format!("p99 at {rate:.0}/s, {name}");
    let mut latency = Line::new(what, steady.p99_ms(), "ms", Goal::AtMost(P99_GOAL_MS))
        .beside("the p99 of the same bound at the same rate", bare_steady.p99_ms())
        .note(format!(
            "{} asked for at a steady rate, {STEADY_TIMES} times; the middle one counts, of the bound, too",
            count(rate, time),
        ))
        .note(format!("of the bound {}", list(bare_by_p99.iter().map(|steady| steady.p99_ms()))));
    for steady in &side.steady {
        latency = latency.note(steady.told());
    }
    let mut latency = latency
        .note(format!("{} acknowledged payments were read back", side.acknowledged()))
        .unless(durability.lacks())
        .wrong(wrong)
        .wrong(side.warm.troubles());
    for (steady, bare) in side.steady.iter().zip(&bare.steady) {
        latency = latency.wrong(steady.outcome.troubles()).wrong(of_bound(&bare.outcome));
    }
    Ok(vec![throughput, latency])
}

/// Brings to the disk what was written before, by whomever. The system does that half a minute later otherwise, in the middle of
/// what is measured next. What is measured itself is synced by its own commits, as ever.
async fn settle_disk() -> anyhow::Result<()> {
    let synced = tokio::task::spawn_blocking(|| Command::new("sync").status()).await?.context("sync does not run")?;
    ensure!(synced.success(), "sync ended with {synced}");
    Ok(())
}

impl Steady {
    fn p99_ms(&self) -> f64 {
        self.outcome.percentile_ms(0.99)
    }

    /// In words; and when the slowest hundredth was due: whether single events made it slow, be they the host's, or the
    /// service all the time.
    fn told(&self) -> String {
        let Self { outcome, host } = self;
        let (stretches, together) = outcome.slow_stretches(0.99);
        let host = host.as_ref().map(|share| format!("; the host took {share}")).unwrap_or_default();
        format!(
            "p99 {:.1} ms, p50 {:.1} ms, max {:.1} ms, {:.0}/s answered; the slowest hundredth was due in {stretches} stretches \
             of {} ms together{host}",
            self.p99_ms(),
            outcome.percentile_ms(0.5),
            outcome.percentile_ms(1.0),
            outcome.per_sec(),
            together.as_millis(),
        )
    }
}

/// Milliseconds, for people.
fn list(times_ms: impl Iterator<Item = f64>) -> String {
    times_ms.map(|ms| format!("{ms:.1} ms")).collect::<Vec<_>>().join(", ")
}

/// A bound that did not answer everything bounds nothing.
fn of_bound(outcome: &Outcome) -> Vec<String> {
    outcome.troubles().into_iter().map(|trouble| format!("of the bound {trouble}")).collect()
}

/// What it is compared with, warm.
async fn bound(world: &World, engine: &Engine) -> anyhow::Result<Side> {
    let folder = world.folder("bound")?;
    let url = match engine.database(BOUND).await? {
        Some(url) => url,
        None => format!("sqlite://{}?mode=rwc", folder.join("bound.db").display()),
    };
    let service = Service::bound(&folder, &url).await?;
    let psps = [Psp::of_bound(&service, CONNECTIONS)?, Psp::of_bound(&service, CONNECTIONS_STEADY)?];
    Ok(Side::warm(service, psps).await)
}

/// The service itself, warm, and its database.
async fn served(world: &World, engine: &Engine) -> anyhow::Result<(Side, String)> {
    let setup = SandboxSetup { database_url: engine.database(SERVED).await?, ..world.setup("initiate")? };
    let service = Service::sandbox(&setup).await?;
    let psps = [Psp::of(&service, CONNECTIONS).await?, Psp::of(&service, CONNECTIONS_STEADY).await?];
    let embedded = || format!("sqlite://{}?mode=rw", database_file(&setup.folder).display());
    let url = setup.database_url.clone().unwrap_or_else(embedded);
    Ok((Side::warm(service, psps).await, url))
}
