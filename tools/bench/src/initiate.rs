//! Rows `initiate` and `initiate-postgres`: payments initiated per second over HTTP, each durable before its response.

use std::time::Duration;

use anyhow::{Context, ensure};
use payferry_testkit::service::Service;
use payferry_testkit::usage::Usage;

use super::bound::start_bound;
use super::drive::{Outcome, closed_loop, count, number, open_loop};
use super::env::{Durability, Engine, Env, WAL_MIB};
use super::host::Host;
use super::psp::BenchPsp;
use super::rounds::in_rounds;
use super::table::{Goal, TableLine};

/// Connections of the load, as in the measurements behind the goals.
pub(super) const CONNECTIONS: usize = 128;
/// Connections of a steady rate: more, so that a short pause of the service does not become a pause of the load.
const CONNECTIONS_STEADY: usize = 256;
/// Rate at which latencies count.
const SQLITE_RATE: f64 = 5_000.0;
const POSTGRES_RATE: f64 = 4_000.0;
/// Rate of a quick run.
const RATE_QUICK: f64 = 200.0;
/// Goal of the p99 at that rate.
const P99_GOAL_MS: f64 = 50.0;
/// Goal of the ratio to the bound.
const BOUND_SHARE_LEAST: f64 = 0.3;
/// Runs of the steady rate, of the bound and of the service alternately. A single pause of the machine is the slowest
/// hundredth of one of them; the run with the median p99 counts.
const STEADY_RUNS: usize = 3;
/// Databases that are made on a server.
const SERVED: &str = "initiate";
const BOUND: &str = "bound";
pub(super) const DATABASES: [&str; 2] = [SERVED, BOUND];
/// Turns of the bound and of the service as closed loops: the speed of the disk changes, and must affect both.
const TURNS: u32 = 3;
/// Time to warm up a service, as a closed loop and before a steady rate.
const WARM_UP: Duration = Duration::from_secs(1);

/// The service or the bound, and its results.
struct Side {
    service: Service,
    psp: BenchPsp,
    /// The same PSP with more connections, for the steady rate.
    steady_psp: BenchPsp,
    warm: Outcome,
    closed: Outcome,
    steady: Vec<Steady>,
    /// CPU time of the service and of the load in the closed loops.
    cpu_secs: f64,
    load_secs: f64,
}

struct Steady {
    outcome: Outcome,
    /// Share of the CPU that the host of the virtual machine took meanwhile.
    host: Option<String>,
}

impl Side {
    async fn warm(service: Service, [psp, steady_psp]: [BenchPsp; 2]) -> Self {
        let warm = closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
        let (closed, steady) = (Outcome::default(), Vec::new());
        Self { service, psp, steady_psp, warm, closed, steady, cpu_secs: 0.0, load_secs: 0.0 }
    }

    /// Runs the steady rate in one piece, so that checkpoints and write-back of the disk count. Opening all connections
    /// does not count: the rate runs for a moment before.
    async fn steady_run(&mut self, rate: f64, time: Duration) {
        let warm = open_loop(rate, count(rate, WARM_UP), |_| self.steady_psp.clone().initiate()).await;
        self.warm.extend(warm);
        let before = Host::now();
        let outcome = open_loop(rate, count(rate, time), |_| self.steady_psp.clone().initiate()).await;
        self.steady.push(Steady { outcome, host: Host::share_since(before) });
    }

    /// Returns the runs of the steady rate, ordered by their p99.
    fn steady_by_p99(&self) -> Vec<&Steady> {
        let mut sorted: Vec<&Steady> = self.steady.iter().collect();
        sorted.sort_by(|one, other| one.p99_ms().total_cmp(&other.p99_ms()));
        sorted
    }

    async fn closed_turn(&mut self, time: Duration) -> anyhow::Result<()> {
        let own_secs = || anyhow::Ok(Usage::own().context("/proc/self/stat cannot be read")?.cpu.as_secs_f64());
        let before = [self.service.cpu_secs()?, own_secs()?];
        let outcome = closed_loop(CONNECTIONS, time, || self.psp.clone().initiate()).await;
        self.closed.extend(outcome);
        self.cpu_secs += self.service.cpu_secs()? - before[0];
        self.load_secs += own_secs()? - before[1];
        Ok(())
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        [&self.warm, &self.closed].into_iter().chain(self.steady.iter().map(|steady| &steady.outcome))
    }

    fn acknowledged(&self) -> usize {
        self.outcomes().map(|outcome| outcome.made.len()).sum()
    }

    /// Reads back every payment that was acknowledged.
    async fn audit(&self) -> anyhow::Result<Vec<String>> {
        let acknowledged: Vec<String> = self.outcomes().flat_map(|outcome| outcome.made.iter().cloned()).collect();
        let failed: usize = self.outcomes().map(Outcome::failed).sum();
        self.psp.audit(&acknowledged, failed).await
    }
}

/// Measures with `engine`, each measurement for `time`.
pub(super) async fn measure(env: &Env, engine: &Engine, time: Duration, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let goal = if engine.is_postgres() { POSTGRES_RATE } else { SQLITE_RATE };
    let rate = if quick { RATE_QUICK } else { goal };
    let wal = if quick { None } else { engine.make_wal_files(WAL_MIB).await? };
    let mut bare = bound(env, engine).await?;
    let (mut side, database_url) = served(env, engine).await?;
    for (which, counts) in in_rounds(TURNS) {
        // Both are warm already.
        if counts {
            which.of(&mut bare, &mut side).closed_turn(time / TURNS).await?;
        }
    }
    for _ in 0..STEADY_RUNS {
        for side in [&mut bare, &mut side] {
            settle_disk().await?;
            side.steady_run(rate, time).await;
        }
    }
    let mut wrong = side.audit().await?;
    wrong.extend(side.service.defects().await?);
    let durability = Durability::of(&database_url).await?;
    let made = number(side.closed.made.len()).max(1.0);
    let (cpu_us, load_us) = (side.cpu_secs * 1e6 / made, side.load_secs * 1e6 / made);

    let name = engine.name();
    let closed = &side.closed;
    let mut throughput =
        TableLine::new(format!("payments initiated, {name}"), closed.per_sec(), "/s", Goal::AtLeast(goal))
            .beside("axum and one grouped writer, two rows a payment, same disk and load", bare.closed.per_sec())
            .ratio_goal(Goal::AtLeast(BOUND_SHARE_LEAST))
            .note(format!("closed loop of {CONNECTIONS} connections; bound and service alternate, {TURNS} turns each"))
            .note(format!("{}; of the bound p99 {:.1} ms", closed.latencies(), bare.closed.percentile_ms(0.99)))
            .note(format!("CPU {cpu_us:.0} µs a payment, and {load_us:.0} µs of the load beside it"))
            .note(durability.note())
            .unless(durability.lacks())
            .wrong(closed.failures())
            .wrong(of_bound(&bare.closed));
    if let Some(wal) = wal {
        throughput = throughput.note(wal);
    }
    let (by_p99, bare_by_p99) = (side.steady_by_p99(), bare.steady_by_p99());
    let (steady, bare_steady) = (by_p99[by_p99.len() / 2], bare_by_p99[bare_by_p99.len() / 2]);
    let of_bare: Vec<String> = bare_by_p99.iter().map(|steady| format!("{:.1} ms", steady.p99_ms())).collect();
    let mut latency =
        TableLine::new(format!("p99 at {rate:.0}/s, {name}"), steady.p99_ms(), "ms", Goal::AtMost(P99_GOAL_MS))
            .beside("the p99 of the same bound at the same rate", bare_steady.p99_ms())
            .note(format!(
                "{} initiations at a steady rate, {STEADY_RUNS} runs; the median counts, also of the bound",
                count(rate, time),
            ))
            .note(format!("of the bound {}", of_bare.join(", ")));
    for steady in &side.steady {
        latency = latency.note(steady.note());
    }
    latency = latency
        .note(format!("{} acknowledged payments were read back", side.acknowledged()))
        .unless(durability.lacks())
        .wrong(wrong)
        .wrong(side.warm.failures());
    for (steady, bare) in side.steady.iter().zip(&bare.steady) {
        latency = latency.wrong(steady.outcome.failures()).wrong(of_bound(&bare.outcome));
    }
    Ok(vec![throughput, latency])
}

/// Writes dirty pages of earlier work to the disk. The system would do it half a minute later, during the next
/// measurement. The commits that are measured sync by themselves.
async fn settle_disk() -> anyhow::Result<()> {
    let synced = tokio::process::Command::new("sync").status().await.context("the command `sync` cannot be run")?;
    ensure!(synced.success(), "the command `sync` ended with {synced}");
    Ok(())
}

impl Steady {
    fn p99_ms(&self) -> f64 {
        self.outcome.percentile_ms(0.99)
    }

    /// Describes the run, and when the slowest hundredth was due: it shows whether single events made it slow, or the
    /// service all the time.
    fn note(&self) -> String {
        let Self { outcome, host } = self;
        let (latencies, answered) = (outcome.latencies(), outcome.per_sec());
        let (stretches, together) = outcome.slow_stretches(0.99);
        let ms = together.as_millis();
        let host = host.as_ref().map(|share| format!("; the host took {share}")).unwrap_or_default();
        let slow = format!("the slowest hundredth was due in {stretches} stretches of {ms} ms together");
        format!("{latencies}, {answered:.0}/s answered; {slow}{host}")
    }
}

/// Failures of the bound: with them it is no bound.
fn of_bound(outcome: &Outcome) -> Vec<String> {
    outcome.failures().into_iter().map(|failure| format!("of the bound {failure}")).collect()
}

async fn bound(env: &Env, engine: &Engine) -> anyhow::Result<Side> {
    let service = start_bound(env, engine.database(BOUND).await?).await?;
    let psps = [BenchPsp::of_bound(&service, CONNECTIONS)?, BenchPsp::of_bound(&service, CONNECTIONS_STEADY)?];
    Ok(Side::warm(service, psps).await)
}

/// Starts and warms the service. Also returns the URL of its database.
async fn served(env: &Env, engine: &Engine) -> anyhow::Result<(Side, String)> {
    let mut options = env.options("initiate")?;
    options.database_url = engine.database(SERVED).await?;
    let service = Service::live_sandbox(&options).await?;
    let psps = [BenchPsp::of(&service, CONNECTIONS).await?, BenchPsp::of(&service, CONNECTIONS_STEADY).await?];
    Ok((Side::warm(service, psps).await, Env::database_url(&options)?))
}
