//! The subcommand `load`.

use std::fs::OpenOptions;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use crate::arrivals::Rate;
use crate::report::{LoadReport, LoadRequest, html, terminal::Terminal};
use crate::run::{OwnService, Plan, Target, run as carry_out};
use payferry_testkit::audit::behaviour::Mix;
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::progress::Progress;
use payferry_testkit::service::{ChildSandboxOptions, Service};

/// Largest number of payments of one run. Each takes about a kilobyte of memory.
const PAYMENTS_MAX: u32 = 1_000_000;
/// Largest number of held payments.
const HOLD_MAX: u32 = 1_000_000;
/// Longest wait for the last payments, in seconds.
const SETTLE_TIMEOUT_SECS_MAX: u64 = 3_600;
/// Connections and files for everything but initiations: reads, sampled payments, webhooks, other clients of the
/// service.
const CONNECTIONS_BESIDE: usize = 512;
/// Connections that the service accepts.
const SERVICE_CONNECTIONS_MAX: usize = 16_384;
/// Interval of the checks whether the child process is alive.
const ALIVE_POLL: Duration = Duration::from_millis(200);
/// Exit code after an interruption, as a shell uses it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Options of `load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry load --rate 100/s --payments 5000
  payferry load --rate 300/s --payments 18000 --report report.html
  payferry load --rate 200/s --payments 12000 --mix exact=100 --hold 100000 --json
  payferry load --url http://127.0.0.1:8080 --key sk_test_... --rate 50/s --payments 1000 --poisson

Behaviours of the mixture: exact pays the amount due, under and over one token less and more, late after the payment has
expired, never not at all. authorized pays the amount due by signature, in USDC.

The exit code is 1 if a payment is lost, wrong or undelivered, if more payments were not made than --not-made-max
allows, or if the payments could not be compared; the report names each. It is 130 after ctrl-c; the report then has
what is known.")]
pub struct Args {
    /// A running sandbox [default: a new one in a child process].
    #[arg(long, value_name = "URL", requires = "key")]
    url: Option<Url>,
    /// Key of one of its PSPs.
    #[arg(long, value_name = "KEY", requires = "url", env = "PAYFERRY_LOAD_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Payments that arrive per second (or /min).
    #[arg(long, default_value = "100/s", value_name = "RATE")]
    rate: Rate,
    /// Number of payments.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAYMENTS_MAX)))]
    payments: u32,
    /// Independent arrivals (Poisson) instead of equal gaps.
    #[arg(long)]
    poisson: bool,
    /// Seed of the arrivals: the same seed gives the same schedule [default: random; the report shows it].
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u32>,
    /// Behaviours of the payers, in percent.
    #[arg(long, default_value = "exact=90,under=4,over=3,late=2,never=1")]
    mix: Mix,
    /// One behaviour after another, each when the payments of the one before are complete, instead of mixed. The report
    /// then has the rate of each.
    #[arg(long)]
    in_turn: bool,
    /// Payments that are accepted and not complete at once. At this number, a due arrival waits, so the rate follows the
    /// service [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PAYMENTS_MAX)))]
    open_max: Option<u32>,
    /// Payments that are made before the load and stay live, unpaid, during it.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(HOLD_MAX)))]
    hold: u32,
    /// Initiations in flight at once; an arrival beyond it is rejected and counted.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight_max: u32,
    /// Longest wait for everything after the last arrival, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=SETTLE_TIMEOUT_SECS_MAX))]
    settle_timeout: u64,
    /// Percentage of the payments that may be refused, unanswered or rejected; the same for held payments.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    not_made_max: f64,
    /// Move the clock of the given sandbox forward at the end, instead of waiting for the last payments to expire: one
    /// minute, for all of its payments.
    #[arg(long, requires = "url")]
    advance_clock: bool,
    /// Allow a sandbox that is not on this machine.
    #[arg(long, requires = "url")]
    allow_remote: bool,
    /// Time between blocks of the new sandbox, in milliseconds.
    #[arg(long, value_name = "MS", conflicts_with = "url", value_parser = clap::value_parser!(u64).range(10..=10_000))]
    block_time_ms: Option<u64>,
    /// Empty database for the new sandbox, instead of a temporary SQLite file: a path or
    /// postgres://user:password@host/name.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "url",
        env = "PAYFERRY_SANDBOX_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    /// Number of nodes of the new sandbox. Several need a PostgreSQL database (`--database-url`).
    #[arg(long, value_name = "N", conflicts_with = "url", requires = "database_url", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: Option<u8>,
    /// Print the report as one JSON object, and nothing else, on standard output.
    #[arg(long)]
    json: bool,
    /// Write the report as a self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "expected a percentage from 0 to 100".into())
}

/// Runs the command. `config_file` configures the new sandbox. `stop` ends the run early. Boxed: a caller in another
/// crate would otherwise compile the whole tool again.
pub fn run(
    args: Args,
    config_file: Option<PathBuf>,
    stop: &CancellationToken,
) -> LocalBoxFuture<'_, anyhow::Result<ExitCode>> {
    Box::pin(put_load(args, config_file, stop))
}

async fn put_load(args: Args, config_file: Option<PathBuf>, stop: &CancellationToken) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.report {
        // Checked now, and not after minutes of load.
        probe(file).with_context(|| format!("the report {} cannot be written", file.display()))?;
    }
    let asked_in_flight_max = usize::try_from(args.in_flight_max)?;
    let (files, _) = rlimit::Resource::NOFILE.get()?;
    let in_flight_max = asked_in_flight_max.min(carried_max(files));
    let request = LoadRequest {
        rate: args.rate,
        payments: args.payments,
        pacing: if args.poisson { "poisson" } else { "constant" },
        seed: args.poisson.then(|| args.seed.unwrap_or_else(rand::random)),
        mix: args.mix,
        in_turn: args.in_turn,
        open_max: args.open_max,
        hold: args.hold,
        in_flight_max,
        settle_timeout_secs: args.settle_timeout,
        target: String::new(),
    };
    let moves_clock = args.url.is_none() || args.advance_clock;
    let mut plan = Plan { request, moves_clock, not_made_percent_max: args.not_made_max };
    let bar = Progress::shown();
    let report = match (&args.url, &args.key) {
        (Some(url), Some(key)) => {
            let target = foreign(url, key, args.allow_remote)?;
            plan.request.target.clone_from(&target.url);
            carry_out(&plan, &target, stop, &bar).await
        }
        _ => with_own_sandbox(plan, &args, config_file, stop, &bar).await,
    };
    bar.done();
    let mut report = report?;
    if in_flight_max < asked_in_flight_max && report.counted.turned_away > 0 {
        report.notes.push(format!(
            "At most {in_flight_max} initiations waited for an answer at once, not {asked_in_flight_max}: the limits of open files and connections allow no more here."
        ));
    }
    notify(&report, &args)
}

/// Returns the largest possible number of initiations in flight with `files` open files: each needs a connection, and
/// the service has the same limit of files and a limit of connections.
fn carried_max(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX).min(SERVICE_CONNECTIONS_MAX).saturating_sub(CONNECTIONS_BESIDE).max(1)
}

/// Checks that a file can be written. Keeps an existing file, and leaves no new one behind.
fn probe(file: &Path) -> std::io::Result<()> {
    let is_new = !file.try_exists()?;
    OpenOptions::new().append(true).create(true).open(file)?;
    if is_new { std::fs::remove_file(file) } else { Ok(()) }
}

/// Target of a sandbox that already runs.
fn foreign(url: &Url, key: &str, allow_remote: bool) -> anyhow::Result<Target> {
    ensure!(url.scheme() == "http", "--url: only the scheme http is supported, as in http://127.0.0.1:8080");
    // Checked before the URL is printed anywhere.
    let names_someone = !url.username().is_empty() || url.password().is_some();
    ensure!(!names_someone, "--url: a user and a password are not supported; give the API key with --key");
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    ensure!(is_bare, "--url: only a host and a port are supported, as in http://127.0.0.1:8080, not {url}");
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    };
    if !is_local && !allow_remote {
        bail!("--url: {url} is not on this machine; add --allow-remote if it is yours");
    }
    let (url, key) = (url.as_str().trim_end_matches('/').to_owned(), key.to_owned());
    Ok(Target { url, key, own: None, ended: CancellationToken::new() })
}

/// Starts a sandbox, puts the load on it and always stops it.
async fn with_own_sandbox(
    mut plan: Plan,
    args: &Args,
    config_file: Option<PathBuf>,
    stop: &CancellationToken,
    bar: &Progress,
) -> anyhow::Result<LoadReport> {
    bar.say("start the sandbox");
    let options = ChildSandboxOptions {
        database_url: args.database_url.clone(),
        block_time: args.block_time_ms.map(Duration::from_millis),
        nodes: args.nodes,
        config: config_file,
        ..ChildSandboxOptions::default()
    };
    let sandbox = Service::sandbox(&options).await?;
    let ready = sandbox.ready();
    let place = if args.database_url.is_some() { "a new sandbox with the given database" } else { "a new sandbox" };
    place.clone_into(&mut plan.request.target);
    let ended = CancellationToken::new();
    let target = Target {
        url: ready.api_url.clone(),
        key: ready.api_key.clone(),
        own: Some(OwnService { pids: sandbox.pids(), operator_url: ready.operator_url.clone() }),
        ended: ended.clone(),
    };
    let sandbox = Arc::new(Mutex::new(Some(sandbox)));
    let watched = Arc::clone(&sandbox);
    let watching = AbortOnDropHandle::new(tokio::spawn(async move {
        while watched.lock().as_mut().is_some_and(|sandbox| sandbox.ended().is_none()) {
            tokio::time::sleep(ALIVE_POLL).await;
        }
        ended.cancel();
    }));
    let report = carry_out(&plan, &target, stop, bar).await;
    drop(watching);
    let sandbox = sandbox.lock().take();
    let Some(sandbox) = sandbox else { return report };
    let log = sandbox.log();
    bar.say("stop the sandbox");
    let stopped = sandbox.stop().await;
    let mut report = report.with_context(|| {
        format!("the last line of the sandbox's log: {}", log.last().map_or("none", String::as_str))
    })?;
    report.service_log = log;
    if let Err(error) = stopped {
        report.findings.push(Finding::of_none("the service stops in order", format!("{error:#}")));
    }
    Ok(report)
}

fn notify(report: &LoadReport, args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.report {
        let written = std::fs::write(file, html::page(report));
        written.with_context(|| format!("the report {} cannot be written", file.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        println!("{}", Terminal(report));
        if let Some(file) = &args.report {
            println!("The report is in {}.", file.display());
        }
    }
    Ok(match (report.interrupted, report.is_ok()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_initiations_in_flight_to_possible_connections() {
        for (files, carried) in [(0, 1), (1_024, 512), (20_000, 15_872), (1 << 20, 15_872)] {
            assert_eq!(carried_max(files), carried, "{files}");
        }
    }
}
