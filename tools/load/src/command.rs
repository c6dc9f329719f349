//! `payferry load`.

use std::fs::OpenOptions;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use crate::arrivals::{Arrivals, Pacing, Rate};
use crate::behaviour::Mix;
use crate::findings::Finding;
use crate::report::{Report, html, terminal::Terminal};
use crate::run::{OwnService, Plan, Target, run as carry_out};
use payferry_testkit::progress::Progress;
use payferry_testkit::service::{SandboxOptions, Service};

/// Most payments of one run: what is known of each is kept in memory, about a kilobyte.
const PAYMENTS_MAX: u32 = 1_000_000;
/// Most payments that are held.
const HOLD_MAX: u32 = 1_000_000;
/// Longest wait for the last payments, in seconds.
const SETTLE_TIMEOUT_SECS_MAX: u64 = 3_600;
/// Connections and files beside those of initiations: reads, payments that are watched, webhooks, whoever else uses the service.
const CONNECTIONS_BESIDE: usize = 512;
/// Connections that the service accepts.
const SERVICE_CONNECTIONS_MAX: usize = 16_384;
/// How often it is looked whether the sandbox of its own still runs.
const ALIVE_POLL: Duration = Duration::from_millis(200);
/// Exit code after an interruption, as a shell gives it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Options of `load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry load --rate 100/s --payments 5000
  payferry load --rate 300/s --payments 18000 --report report.html
  payferry load --rate 200/s --payments 12000 --mix exact=100 --hold 100000 --json
  payferry load --url http://127.0.0.1:8080 --key sk_test_... --rate 50/s --payments 1000 --poisson

The mixture: exact paid_amount what is due, under and over one token less and more, late after the payment has expired, never not
at all. Exit code 1 if any payment is lost, wrong or undelivered, or if more payments could not be made than
--not-made-max allows; each is named. Also 1 if they could not be compared. 130 after ctrl-c, with what was known by then.")]
pub struct Args {
    /// A running sandbox [default: one of its own, in a process of its own].
    #[arg(long, value_name = "URL", requires = "key")]
    url: Option<Url>,
    /// The key of one of its PSPs.
    #[arg(long, value_name = "KEY", requires = "url", env = "PAYFERRY_LOAD_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Payments that arrive in a second (or /min).
    #[arg(long, default_value = "100/s", value_name = "RATE")]
    rate: Rate,
    /// Payments in all.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAYMENTS_MAX)))]
    payments: u32,
    /// Let them arrive independently of each other, rather than evenly.
    #[arg(long)]
    poisson: bool,
    /// Decides when they arrive: with the same seed, at the same moments [default: any; the report says which].
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u32>,
    /// What payers do, in percent.
    #[arg(long, default_value = "exact=90,under=4,over=3,late=2,never=1")]
    mix: Mix,
    /// Payments that are made beforehand and stay live, unpaid, while the load runs.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(HOLD_MAX)))]
    hold: u32,
    /// Initiations without an answer at once; whoever is due beyond it is turned away and counted.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight_max: u32,
    /// How long everything may take after the last arrival, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=SETTLE_TIMEOUT_SECS_MAX))]
    settle_timeout: u64,
    /// Percent of the payments that may be refused, not answered or turned away; of those to be held, as many.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    not_made_max: f64,
    /// Move a foreign sandbox's clock on in the end, rather than waiting for the last expiries: a minute for all its payments.
    #[arg(long, requires = "url")]
    advance_clock: bool,
    /// Load a sandbox that is not on this machine.
    #[arg(long, requires = "url")]
    allow_remote: bool,
    /// Time between blocks of the sandbox of its own, in milliseconds.
    #[arg(long, value_name = "MS", conflicts_with = "url", value_parser = clap::value_parser!(u64).range(10..=10_000))]
    block_time_ms: Option<u64>,
    /// An empty database for the sandbox of its own, in place of a temporary SQLite: a path or postgres://user:password@host/name.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "url",
        env = "PAYFERRY_SANDBOX_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    /// Print the report as one JSON object, and nothing else, on standard output.
    #[arg(long)]
    json: bool,
    /// Write the report as an HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "expected a percentage from 0 to 100".into())
}

/// Runs the command. `config_file` configures the sandbox of its own. `stop` ends the run early.
pub async fn run(args: Args, config_file: Option<PathBuf>, stop: &CancellationToken) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.report {
        // Now, and not after minutes of load.
        probe(file).with_context(|| format!("the report {} cannot be written", file.display()))?;
    }
    let pacing =
        if args.poisson { Pacing::Poisson { seed: args.seed.unwrap_or_else(rand::random) } } else { Pacing::Constant };
    let asked_in_flight_max = usize::try_from(args.in_flight_max)?;
    let (files, _) = rlimit::Resource::NOFILE.get()?;
    let in_flight_max = asked_in_flight_max.min(carried_max(files));
    let plan = Plan {
        arrivals: Arrivals { rate: args.rate, count: args.payments, pacing },
        mix: args.mix,
        hold: args.hold,
        in_flight_max,
        settle_timeout: Duration::from_secs(args.settle_timeout),
        moves_clock: args.url.is_none() || args.advance_clock,
        not_made_percent_max: args.not_made_max,
    };
    let bar = Progress::new();
    let report = match (&args.url, &args.key) {
        (Some(url), Some(key)) => {
            let target = foreign(url, key, args.allow_remote)?;
            carry_out(&plan, &target, stop, &bar).await
        }
        _ => with_own_sandbox(&plan, &args, config_file, stop, &bar).await,
    };
    bar.done();
    let mut report = report?;
    if in_flight_max < asked_in_flight_max && report.counted.turned_away > 0 {
        report.notes.push(format!(
            "At most {in_flight_max} initiations waited for an answer at once, not {asked_in_flight_max}: there can be no more connections here."
        ));
    }
    tell(&report, &args)
}

/// How many initiations can be in flight where so many files may be open: each has a connection of its own, and the service,
/// which may open as many files, takes so many.
fn carried_max(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX).min(SERVICE_CONNECTIONS_MAX).saturating_sub(CONNECTIONS_BESIDE).max(1)
}

/// Whether a file can be written. One that is there stays as it is, and none is left behind.
fn probe(file: &Path) -> std::io::Result<()> {
    let is_new = !file.try_exists()?;
    OpenOptions::new().append(true).create(true).open(file)?;
    if is_new { std::fs::remove_file(file) } else { Ok(()) }
}

/// A sandbox that runs already.
fn foreign(url: &Url, key: &str, allow_remote: bool) -> anyhow::Result<Target> {
    ensure!(url.scheme() == "http", "--url: only http is spoken here; expected one such as http://127.0.0.1:8080");
    // Before the URL is printed anywhere.
    let names_someone = !url.username().is_empty() || url.password().is_some();
    ensure!(!names_someone, "--url: no user and no password are sent; the key is all that opens the service (--key)");
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    ensure!(is_bare, "--url: only a host and a port can be called, as in http://127.0.0.1:8080, not {url}");
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    };
    if !is_local && !allow_remote {
        bail!("--url: {url} is not on this machine; --allow-remote loads it all the same, if it is yours");
    }
    let (url, key) = (url.as_str().trim_end_matches('/').to_owned(), key.to_owned());
    Ok(Target { name: url.clone(), url, key, own: None, ended: CancellationToken::new() })
}

/// Starts a sandbox, loads it and stops it, whatever comes in between.
async fn with_own_sandbox(
    plan: &Plan,
    args: &Args,
    config_file: Option<PathBuf>,
    stop: &CancellationToken,
    bar: &Progress,
) -> anyhow::Result<Report> {
    bar.say("a sandbox is started");
    let options = SandboxOptions {
        database_url: args.database_url.clone(),
        block_time: args.block_time_ms.map(Duration::from_millis),
        config: config_file,
        ..SandboxOptions::default()
    };
    let sandbox = Service::sandbox(&options).await?;
    let ready = sandbox.ready();
    let kind = if args.database_url.is_some() {
        "a sandbox of its own, on the given database"
    } else {
        "a sandbox of its own"
    };
    let ended = CancellationToken::new();
    let target = Target {
        url: ready.api_url.clone(),
        key: ready.api_key.clone(),
        name: kind.to_owned(),
        own: Some(OwnService { pid: sandbox.pid(), operator_url: ready.operator_url.clone() }),
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
    let report = carry_out(plan, &target, stop, bar).await;
    drop(watching);
    let sandbox = sandbox.lock().take();
    let Some(sandbox) = sandbox else { return report };
    let log = sandbox.log();
    bar.say("the sandbox is stopped");
    let stopped = sandbox.stop().await;
    let mut report =
        report.with_context(|| format!("the sandbox's last words: {}", log.last().map_or("none", String::as_str)))?;
    report.service_log = log;
    if let Err(error) = stopped {
        report.findings.push(Finding::of_none("the service stops in order when it is told to", format!("{error:#}")));
    }
    Ok(report)
}

fn tell(report: &Report, args: &Args) -> anyhow::Result<ExitCode> {
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
    fn no_more_are_in_flight_than_there_can_be_connections() {
        for (files, carried) in [(0, 1), (1_024, 512), (20_000, 15_872), (1 << 20, 15_872)] {
            assert_eq!(carried_max(files), carried, "{files}");
        }
    }
}
