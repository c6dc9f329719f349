//! Payments initiated a second over HTTP, each one on disk before its answer.

use std::time::Duration;

use super::drive::{Outcome, closed_loop, number, open_loop};
use super::psp::Psp;
use super::service::{SandboxSetup, Service, cpu_secs_of};
use super::table::{Goal, Line};
use super::world::{Engine, World};

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
/// The share of the bound that is wanted with SQLite; with PostgreSQL the rate alone is.
const BOUND_SHARE_LEAST: f64 = 0.3;
/// How long a service is warmed up.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures on `engine`, for `time` each.
pub(super) async fn measure(world: &World, engine: &Engine, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let goal = if engine.is_postgres() { POSTGRES_RATE } else { SQLITE_RATE };
    let rate = if quick { RATE_QUICK } else { goal };
    let (bound, bound_steady) = bound(world, engine, rate, time).await?;

    let setup = SandboxSetup { database_url: engine.database("initiate").await?, ..world.setup("initiate")? };
    let service = Service::sandbox(&setup).await?;
    let psp = Psp::of(&service, CONNECTIONS).await?;
    let warm = closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
    let cpu = [service.cpu_secs()?, cpu_secs_of(std::process::id())?];
    let closed = closed_loop(CONNECTIONS, time, || psp.clone().initiate()).await;
    let made = number(closed.made.len()).max(1.0);
    let cpu_us = (service.cpu_secs()? - cpu[0]) * 1e6 / made;
    let load_us = (cpu_secs_of(std::process::id())? - cpu[1]) * 1e6 / made;

    let steady_psp = Psp::of(&service, CONNECTIONS_STEADY).await?;
    let requests = super::drive::count(rate, time);
    let steady = open_loop(rate, requests, |_| steady_psp.clone().initiate()).await;
    let mut wrong = audit(&psp, &[&warm, &closed, &steady]).await?;
    wrong.extend(service.unsound().await?);

    let name = engine.name();
    let what = format!("payments initiated, {name}");
    let throughput = Line::new(what, closed.per_sec(), "/s", Goal::AtLeast(goal))
        .beside("axum and one grouped writer, two rows a payment, same disk and load", bound.per_sec())
        .note(format!("{CONNECTIONS} connections that ask again at once"))
        .note(format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; of the bound p99 {:.1} ms",
            closed.percentile_ms(0.5),
            closed.percentile_ms(0.99),
            closed.percentile_ms(1.0),
            bound.percentile_ms(0.99),
        ))
        .note(format!("CPU {cpu_us:.0} µs a payment, and {load_us:.0} µs of the load beside it"))
        .note(engine.promise());
    let throughput = if engine.is_postgres() { throughput } else { throughput.ratio_at_least(BOUND_SHARE_LEAST) };
    let what = format!("p99 at {rate:.0}/s, {name}");
    let latency = Line::new(what, steady.percentile_ms(0.99), "ms", Goal::AtMost(P99_GOAL_MS))
        .note(format!(
            "{} asked for at a steady rate, {:.0}/s answered; p50 {:.1} ms, max {:.1} ms",
            requests,
            steady.per_sec(),
            steady.percentile_ms(0.5),
            steady.percentile_ms(1.0),
        ))
        .note(format!(
            "the bound at the same rate: p99 {:.1} ms, max {:.1} ms",
            bound_steady.percentile_ms(0.99),
            bound_steady.percentile_ms(1.0),
        ))
        .note(format!(
            "{} acknowledged payments were read back",
            warm.made.len() + closed.made.len() + steady.made.len()
        ))
        .wrong(wrong)
        .wrong(steady.troubles());
    Ok(vec![throughput.wrong(closed.troubles()), latency])
}

/// As fast as it answers, and at the rate.
async fn bound(world: &World, engine: &Engine, rate: f64, time: Duration) -> anyhow::Result<(Outcome, Outcome)> {
    let folder = world.folder("bound")?;
    let url = match engine.database("bound").await? {
        Some(url) => url,
        None => format!("sqlite://{}?mode=rwc", folder.join("bound.db").display()),
    };
    let service = Service::bound(&folder, &url).await?;
    let psp = Psp::of_bound(&service, CONNECTIONS)?;
    closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
    let closed = closed_loop(CONNECTIONS, time, || psp.clone().initiate()).await;
    let steady_psp = Psp::of_bound(&service, CONNECTIONS_STEADY)?;
    let steady = open_loop(rate, super::drive::count(rate, time), |_| steady_psp.clone().initiate()).await;
    Ok((closed, steady))
}

/// Reads everything back that was acknowledged.
async fn audit(psp: &Psp, outcomes: &[&Outcome]) -> anyhow::Result<Vec<String>> {
    let acknowledged: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.made.iter().cloned()).collect();
    let failed: u64 = outcomes.iter().flat_map(|outcome| outcome.errors.values()).sum();
    psp.audit(&acknowledged, usize::try_from(failed).unwrap_or(usize::MAX)).await
}
