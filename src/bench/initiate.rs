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
/// Turns that the bound and the service take: the disk is not equally fast all the time, and both are to have their share
/// of it.
const TURNS: u32 = 3;
/// How long a service is warmed up.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures on `engine`, for `time` each.
pub(super) async fn measure(world: &World, engine: &Engine, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let goal = if engine.is_postgres() { POSTGRES_RATE } else { SQLITE_RATE };
    let rate = if quick { RATE_QUICK } else { goal };
    let (bound_service, bound_psp) = bound(world, engine).await?;
    let setup = SandboxSetup { database_url: engine.database("initiate").await?, ..world.setup("initiate")? };
    let service = Service::sandbox(&setup).await?;
    let psp = Psp::of(&service, CONNECTIONS).await?;
    let warm = closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
    let (mut bound, mut closed, mut cpu_secs, mut load_secs) = (Outcome::default(), Outcome::default(), 0.0, 0.0);
    for _ in 0..TURNS {
        bound.extend(closed_loop(CONNECTIONS, time / TURNS, || bound_psp.clone().initiate()).await);
        let before = [service.cpu_secs()?, cpu_secs_of(std::process::id())?];
        closed.extend(closed_loop(CONNECTIONS, time / TURNS, || psp.clone().initiate()).await);
        cpu_secs += service.cpu_secs()? - before[0];
        load_secs += cpu_secs_of(std::process::id())? - before[1];
    }
    let made = number(closed.made.len()).max(1.0);
    let (cpu_us, load_us) = (cpu_secs * 1e6 / made, load_secs * 1e6 / made);

    let requests = super::drive::count(rate, time);
    let steady_psp = Psp::of_bound(&bound_service, CONNECTIONS_STEADY)?;
    let bound_steady = open_loop(rate, requests, |_| steady_psp.clone().initiate()).await;
    drop(bound_service);
    let steady_psp = Psp::of(&service, CONNECTIONS_STEADY).await?;
    let steady = open_loop(rate, requests, |_| steady_psp.clone().initiate()).await;
    let mut wrong = audit(&psp, &[&warm, &closed, &steady]).await?;
    wrong.extend(service.unsound().await?);

    let name = engine.name();
    let what = format!("payments initiated, {name}");
    let throughput = Line::new(what, closed.per_sec(), "/s", Goal::AtLeast(goal))
        .beside("axum and one grouped writer, two rows a payment, same disk and load", bound.per_sec())
        .note(format!("{CONNECTIONS} connections that ask again at once; bound and service take {TURNS} turns each"))
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
        .beside("the p99 of the same bound at the same rate", bound_steady.percentile_ms(0.99))
        .note(format!(
            "{} asked for at a steady rate, {:.0}/s answered; p50 {:.1} ms, max {:.1} ms",
            requests,
            steady.per_sec(),
            steady.percentile_ms(0.5),
            steady.percentile_ms(1.0),
        ))
        .note(format!("of the bound max {:.1} ms", bound_steady.percentile_ms(1.0)))
        .note(format!(
            "{} acknowledged payments were read back",
            warm.made.len() + closed.made.len() + steady.made.len()
        ))
        .wrong(wrong)
        .wrong(steady.troubles());
    Ok(vec![throughput.wrong(closed.troubles()), latency])
}

/// What it is compared with, warm.
async fn bound(world: &World, engine: &Engine) -> anyhow::Result<(Service, Psp)> {
    let folder = world.folder("bound")?;
    let url = match engine.database("bound").await? {
        Some(url) => url,
        None => format!("sqlite://{}?mode=rwc", folder.join("bound.db").display()),
    };
    let service = Service::bound(&folder, &url).await?;
    let psp = Psp::of_bound(&service, CONNECTIONS)?;
    closed_loop(CONNECTIONS, WARM_UP, || psp.clone().initiate()).await;
    Ok((service, psp))
}

/// Reads everything back that was acknowledged.
async fn audit(psp: &Psp, outcomes: &[&Outcome]) -> anyhow::Result<Vec<String>> {
    let acknowledged: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.made.iter().cloned()).collect();
    let failed: u64 = outcomes.iter().flat_map(|outcome| outcome.errors.values()).sum();
    psp.audit(&acknowledged, usize::try_from(failed).unwrap_or(usize::MAX)).await
}
