//! Options of `load`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use url::Url;

use crate::faults::FaultPlan;
use crate::faults::parse::conduct;
use crate::knee::DEFAULT_THRESHOLDS;
use crate::report::LoadRequest;
use crate::schedule::{Schedule, duration_of};
use crate::thresholds::Threshold;
use payferry_testkit::audit::behaviour::{Behaviour, Mix};
use payferry_testkit::audit::reception::Conduct;
use payferry_testkit::rate::Rate;

/// Largest number of payments of one run. Each takes about a kilobyte of memory.
const PAYMENTS_MAX: u32 = 1_000_000;
/// Largest number of PSPs. Each is compared by itself at the end.
const PSPS_MAX: i64 = 20;
/// Largest number of held payments.
const HOLD_MAX: u32 = 1_000_000;
/// Longest wait for the last payments, in seconds.
const SETTLE_TIMEOUT_SECS_MAX: u64 = 3_600;
/// Length of the arrivals of one run of a search.
const PROBE_DURATION: Duration = Duration::from_secs(20);
/// Connections and files for everything but initiations: reads, sampled payments, webhooks, other clients of the
/// service.
const CONNECTIONS_BESIDE: usize = 512;
/// Connections that the service accepts.
const SERVICE_CONNECTIONS_MAX: usize = 16_384;

/// Options of `load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry load --rate 100/s --payments 5000
  payferry load --rate 300/s --payments 18000 --report report.html
  payferry load --rate 200/s --payments 12000 --mix exact=100 --hold 100000 --json
  payferry load --stages 0-300/2m,300/10m,600/1m --threshold 'accepted:p99<100ms' --threshold 'refused<60%'
  payferry load --rate 100/s --payments 5000 --mix exact=70,refunded=10,withdrawn=10,customer=10 --psps 3
  payferry load --find-knee --duration 30s --threshold 'complete:p99<5s'
  payferry load --rate 200/s --duration 2m --compare old.json
  payferry load --rate 50/s --duration 40s --fault 'kill 3@5s-25s; reorg base 8@28s; rpc-errors 0.1@12s-20s' --report r.html
  payferry load --url http://127.0.0.1:8080 --key sk_test_... --rate 50/s --payments 1000 --poisson
  payferry load --url http://127.0.0.1:8080 --key sk_test_... --payers payers.toml --rate 1/s --payments 20 --settle-timeout 600

Behaviours of the mixture: exact pays the amount due, under and over one token less and more, late after the payment has
expired, never not at all. authorized pays the amount due by signature, in USDC. refunded pays the amount due, and the PSP refunds
all or half of it after the settlement. paid_out and withdrawn pay the amount due, and the PSP pays a part of it
out to a customer, or withdraws it. customer is like paid_out, to a customer of its own, who is registered when the payment is
due, found by search and verified.

The exit code is 1 if a payment is lost, wrong or undelivered, if more payments were not made than --not-made-max
allows, if a --threshold is broken, or if the payments could not be compared; the report names each. It is 130 after
ctrl-c; the report then has what is known.")]
pub struct Args {
    /// A running sandbox [default: a new one in a child process].
    #[arg(long, value_name = "URL", requires = "key")]
    pub(crate) url: Option<Url>,
    /// Key of one of its PSPs.
    #[arg(long, value_name = "KEY", requires = "url", env = "PAYFERRY_LOAD_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// Test networks of a `payferry serve` at --url, and accounts that pay on them: a TOML file with a table for each chain, such as
    /// [base], that has rpc_url, contract, usdc, usdt and private_keys. Main networks are refused.
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with = "advance_clock")]
    pub(crate) payers: Option<PathBuf>,
    /// Payments that arrive per second (or /min).
    #[arg(long, default_value = "100/s", value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Length of the arrivals, instead of a number of payments; of each run of --find-knee [default there: 20s].
    #[arg(long, value_name = "TIME", conflicts_with = "payments", value_parser = duration_of)]
    pub(crate) duration: Option<Duration>,
    /// Rates over time, instead of one: rate/duration or rate-rate/duration, such as 0-300/2m,300/10m,600/1m.
    #[arg(long, value_name = "STAGES", conflicts_with_all = ["rate", "duration", "payments", "in_turn"])]
    pub(crate) stages: Option<Schedule>,
    /// Number of payments.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAYMENTS_MAX)))]
    pub(crate) payments: u32,
    /// Independent arrivals (Poisson) instead of equal gaps.
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Seed of the arrivals: the same seed gives the same schedule [default: random; the report shows it].
    #[arg(long, value_name = "N", requires = "poisson")]
    pub(crate) seed: Option<u32>,
    /// Behaviours of the payers, in percent.
    #[arg(long, default_value = "exact=90,under=4,over=3,late=2,never=1")]
    pub(crate) mix: Mix,
    /// One behaviour after another, each when the payments of the one before are complete, instead of mixed. The report
    /// then has the rate of each.
    #[arg(long)]
    pub(crate) in_turn: bool,
    /// Payments that are accepted and not complete at once. At this number, a due arrival waits, so the rate follows the
    /// service [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PAYMENTS_MAX)))]
    pub(crate) open_max: Option<u32>,
    /// Payments that are made before the load and stay live, unpaid, during it.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(HOLD_MAX)))]
    pub(crate) hold: u32,
    /// Initiations in flight at once; an arrival beyond it is rejected and counted.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) in_flight_max: u32,
    /// Longest wait for everything after the last arrival, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=SETTLE_TIMEOUT_SECS_MAX))]
    pub(crate) settle_timeout: u64,
    /// Percentage of the payments that may be refused, unanswered or rejected; the same for held payments.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub(crate) not_made_max: f64,
    /// Condition on a figure, which decides the exit code; repeatable: a percentile of a stage (accepted:p99<100ms,
    /// complete:p99<5s), the share of complete payments (goodput>0.9), or the share refused with `overloaded`
    /// (refused<60%), which then does not count for --not-made-max.
    #[arg(long = "threshold", value_name = "CONDITION")]
    pub(crate) thresholds: Vec<Threshold>,
    /// Search for the highest rate at which the thresholds are kept, with a run for each rate (two if the first fails), from --rate on
    /// [thresholds by default: accepted:p99<100ms, complete:p99<5s, goodput>0.99].
    #[arg(long, conflicts_with_all = ["stages", "payments", "in_turn", "open_max", "compare", "report", "csv", "prometheus", "fault"])]
    pub(crate) find_knee: bool,
    /// Faults at times from the first arrival, with `;` between them; repeatable. The expectations and the plots follow
    /// them: kill@6s (SIGKILL of the new sandbox, which starts again on its data), kill 3@5s-25s, reorg base 8@9s,
    /// rpc-errors 0.1@12s-20s (the share of the chains' RPC calls that fail), receiver-fail 0.5@10s-20s (the share of the
    /// webhooks that the receiver refuses), receiver-slow 2s@10s-20s.
    #[arg(long, value_name = "FAULTS", conflicts_with_all = ["in_turn", "open_max"])]
    pub(crate) fault: Vec<FaultPlan>,
    /// Behaviour of the webhook receiver during the whole run: slow=2s, fail=0.1 or both with a comma. A refused webhook
    /// must be delivered again; none is refused more than twice.
    #[arg(long, value_name = "BEHAVIOUR", value_parser = conduct)]
    pub(crate) receiver: Option<Conduct>,
    /// Compare with an older report, the output of --json in a file: the ratios of the figures, and their noise.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Move the clock of the given sandbox forward at the end, instead of waiting for the last payments to expire: one
    /// minute, for all of its payments.
    #[arg(long, requires = "url")]
    pub(crate) advance_clock: bool,
    /// Allow a sandbox that is not on this machine.
    #[arg(long, requires = "url")]
    pub(crate) allow_remote: bool,
    /// Time between blocks of the new sandbox, in milliseconds.
    #[arg(long, value_name = "MS", conflicts_with = "url", value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub(crate) block_time_ms: Option<u64>,
    /// Empty database for the new sandbox, instead of a temporary SQLite file: a path or
    /// postgres://user:password@host/name.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "url",
        env = "PAYFERRY_SANDBOX_DATABASE_URL",
        hide_env_values = true
    )]
    pub(crate) database_url: Option<String>,
    /// Number of nodes of the new sandbox. Several need a PostgreSQL database (`--database-url`).
    #[arg(long, value_name = "N", conflicts_with = "url", requires = "database_url", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) nodes: Option<u8>,
    /// Number of PSPs of the new sandbox, which share the payments. Each has a vault, a key and a webhook receiver of its
    /// own.
    #[arg(long, value_name = "N", conflicts_with = "url", value_parser = clap::value_parser!(u8).range(1..=PSPS_MAX))]
    pub(crate) psps: Option<u8>,
    /// Print the report as one JSON object, and nothing else, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as a self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the counts and figures of each second as CSV.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the figures of the run in the Prometheus text format.
    #[arg(long, value_name = "FILE")]
    pub(crate) prometheus: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "expected a percentage from 0 to 100".into())
}

impl Args {
    /// Returns the load of one run of a search.
    pub(crate) fn probe(&self, rate: Rate) -> anyhow::Result<LoadRequest> {
        let duration = self.duration.unwrap_or(PROBE_DURATION);
        let request = self.request_of(rate, Some(Schedule::constant(rate, duration)))?;
        Ok(LoadRequest { thresholds: self.thresholds_of_search()?, ..request })
    }

    /// Returns the thresholds of a search.
    pub(crate) fn thresholds_of_search(&self) -> anyhow::Result<Vec<Threshold>> {
        if self.thresholds.is_empty() {
            let parsed = DEFAULT_THRESHOLDS.iter().map(|text| text.parse().map_err(anyhow::Error::msg));
            return parsed.collect();
        }
        Ok(self.thresholds.clone())
    }

    /// Returns the load that is asked for.
    pub(crate) fn request(&self) -> anyhow::Result<LoadRequest> {
        let timed = self.duration.map(|duration| Schedule::constant(self.rate, duration));
        self.request_of(self.rate, self.stages.clone().or(timed))
    }

    fn request_of(&self, rate: Rate, stages: Option<Schedule>) -> anyhow::Result<LoadRequest> {
        let (files, _) = rlimit::Resource::NOFILE.get()?;
        let seed = self.poisson.then(|| self.seed.unwrap_or_else(rand::random));
        let request = LoadRequest {
            rate: stages.as_ref().and_then(Schedule::peak).unwrap_or(rate),
            payments: stages.as_ref().map_or(Ok(self.payments), |stages| payments_of(stages, seed))?,
            stages,
            faults: FaultPlan(self.fault.iter().flat_map(|plan| plan.0.iter().copied()).collect()),
            receiver: self.receiver.unwrap_or_default(),
            pacing: if self.poisson { "poisson" } else { "constant" },
            seed,
            thresholds: self.thresholds.clone(),
            mix: self.mix,
            psps: self.psps.unwrap_or(1),
            in_turn: self.in_turn,
            open_max: self.open_max,
            hold: self.hold,
            in_flight_max: usize::try_from(self.in_flight_max)?.min(carried_max(files)),
            settle_timeout_secs: self.settle_timeout,
            target: String::new(),
        };
        self.check_payers(&request)?;
        self.check_faults(&request)?;
        Ok(request)
    }

    /// Checks that a service that is no sandbox can have this load.
    fn check_payers(&self, request: &LoadRequest) -> anyhow::Result<()> {
        if self.payers.is_none() {
            return Ok(());
        }
        let of_sandbox = [Behaviour::PaidOut, Behaviour::Withdrawn, Behaviour::Customer];
        if let Some(behaviour) = of_sandbox.into_iter().find(|behaviour| request.mix.percent(*behaviour) > 0) {
            bail!("--mix: `{behaviour}` needs a sandbox, which verifies customers and sets withdrawal wallets");
        }
        let is_possible = !request.faults.0.iter().any(|fault| fault.kind.needs_service());
        ensure!(is_possible, "--fault: only receiver-fail and receiver-slow are possible with --payers");
        Ok(())
    }

    fn check_faults(&self, request: &LoadRequest) -> anyhow::Result<()> {
        if request.faults.is_empty() {
            return Ok(());
        }
        ensure!(
            !request.faults.kills() || self.url.is_none(),
            "--fault: `kill` needs a sandbox of the load tester's own, and --url names another one"
        );
        ensure!(
            !request.faults.kills() || self.nodes.is_none(),
            "--fault: `kill` kills a sandbox of one node, and --nodes starts several"
        );
        let is_sent_on = Behaviour::MIXED.iter().any(|one| one.outbound().is_some() && request.mix.percent(*one) > 0);
        ensure!(
            !request.faults.reorganises() || !is_sent_on,
            "--fault: `reorg` is not supported with outbound transfers in --mix, because it may undo the payment of one"
        );
        request.faults.check(request.schedule().last())
    }
}

/// Returns the number of payments of a schedule.
fn payments_of(stages: &Schedule, seed: Option<u32>) -> anyhow::Result<u32> {
    let due = stages.offsets(seed).take(PAYMENTS_MAX as usize + 1).count();
    ensure!(due > 0, "no payment is due at the rates {stages}: use a higher rate or a longer time");
    ensure!(due <= PAYMENTS_MAX as usize, "the rates {stages} have more than {PAYMENTS_MAX} payments");
    Ok(u32::try_from(due)?)
}

/// Returns the largest possible number of initiations in flight with `files` open files: each needs a connection, and
/// the service has the same limit of files and a limit of connections.
fn carried_max(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX).min(SERVICE_CONNECTIONS_MAX).saturating_sub(CONNECTIONS_BESIDE).max(1)
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
