//! The subcommand `bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use futures::future::LocalBoxFuture;
use url::Url;

use super::bound::{self, BOUND_DATABASE_URL};
use super::{PROFILE, Row, TableLine, against, clean_up, render};

/// Duration of a measurement with `--quick`.
const QUICK: Duration = Duration::from_secs(1);
/// Default and longest duration of a measurement.
const SECONDS_DEFAULT: u64 = 10;
const SECONDS_MAX: u64 = 600;
/// Default, smallest and largest number of live payments.
const LIVE_DEFAULT: u32 = 100_000;
const LIVE_MIN: i64 = 1_000;
const LIVE_MAX: i64 = 1_000_000;
/// The number with `--quick`.
const LIVE_QUICK: u32 = 2_000;
/// Exit code after ctrl-c.
const INTERRUPTED: u8 = 130;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry bench
  payferry bench --only initiate --seconds 20 --folder target
  payferry bench --only initiate-postgres --postgres postgres://postgres@127.0.0.1:5432
  payferry bench --against ../old/target/release/payferry --folder target --strict

Each service is a process of its own on a free port of this machine, with its data in a folder that is removed
afterwards. Run nothing else beside it. If the temporary folder is in memory (tmpfs), durable commits cost nothing: name
a folder on a disk then.

With --against, this binary and the other one get the same load in alternating rounds: initiations on SQLite, on
PostgreSQL with --postgres, and complete payments. Each has a line for payments per second and one for the CPU time of a
payment. The ratio of each line is this binary to the other one. Build both with the same profile.

The exit code is 1 if a result is wrong (a payment is lost, for example), and with --strict if a goal is missed.")]
pub struct Args {
    /// Only these rows, separated by commas.
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub(super) only: Vec<Row>,
    /// Duration of each measurement.
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT, conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Live payments beside which `memory`, `pages`, `cpu` and `rehydration` are measured. 1,000,000 take a quarter of an hour.
    #[arg(long, value_name = "N", default_value_t = LIVE_DEFAULT, conflicts_with = "quick", value_parser = clap::value_parser!(u32).range(LIVE_MIN..=LIVE_MAX))]
    live: u32,
    /// Small and short measurements, to see that they work: the figures mean little.
    #[arg(long)]
    pub(super) quick: bool,
    /// End with exit code 1 if a goal is missed, too.
    #[arg(long)]
    strict: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Compare this binary with another one, usually an older version.
    #[arg(long, value_name = "BINARY")]
    pub(super) against: Option<PathBuf>,
    /// PostgreSQL server on which databases may be made; without it, rows that need one are left out.
    #[arg(long, value_name = "URL", env = "PAYFERRY_BENCH_POSTGRES", hide_env_values = true)]
    pub(super) postgres: Option<Url>,
    /// Folder for the data, on the disk to measure [default: the temporary folder].
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<PathBuf>,
    /// Serve the bound that the service is compared with.
    #[arg(long, hide = true)]
    bound_server: bool,
    /// Database of the bound.
    #[arg(long, value_name = "URL", env = BOUND_DATABASE_URL, hide_env_values = true, hide = true)]
    bound_database_url: Option<String>,
}

impl Args {
    /// Returns true if this process is the bound. It ends when its standard input closes.
    pub const fn is_bound_server(&self) -> bool {
        self.bound_server
    }

    /// Returns the number of live payments, where many are needed.
    pub(super) const fn live(&self) -> u32 {
        if self.quick { LIVE_QUICK } else { self.live }
    }

    /// Returns the duration of each measurement, where it is open.
    pub(super) const fn time(&self) -> Duration {
        if self.quick { QUICK } else { Duration::from_secs(self.seconds) }
    }
}

/// Runs the command until it is done or `interrupted` completes. Boxed: a caller in another crate would otherwise
/// compile the whole tool again.
pub fn run(args: Args, interrupted: LocalBoxFuture<'_, ()>) -> LocalBoxFuture<'_, anyhow::Result<ExitCode>> {
    Box::pin(measure(args, interrupted))
}

async fn measure(mut args: Args, interrupted: LocalBoxFuture<'_, ()>) -> anyhow::Result<ExitCode> {
    if args.bound_server {
        let database_url = args.bound_database_url.as_deref();
        let database_url = database_url.with_context(|| format!("{BOUND_DATABASE_URL} is not set"))?;
        tokio::select! {
            served = bound::serve(database_url) => served?,
            () = interrupted => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (rows, left_out) = rows(std::mem::take(&mut args.only), args.postgres.is_some(), args.against.is_some());
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.into_iter().map(Row::name).collect();
        eprintln!("left out, since --postgres URL is missing: {}", names.join(", "));
    }
    args.only = rows;
    let begin = |row: &str| eprintln!("measuring {row}");
    let lines = tokio::select! {
        lines = super::run(&args, begin) => lines?,
        // Dropping the future ends processes and removes folders. Databases on a server remain.
        () = interrupted => {
            clean_up(&args).await?;
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        print!("Cargo profile: {PROFILE}\n\n{}", render(&lines));
    }
    if args.strict {
        for line in lines.iter().filter(|line| !line.holds) {
            eprintln!("missed: {}", line.summary());
        }
    }
    Ok(if lines.iter().any(|line| fails(line, args.strict)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the rows to measure and the rows to leave out. Rows that the command line names are never left out.
fn rows(only: Vec<Row>, has_postgres: bool, is_against: bool) -> (Vec<Row>, Vec<Row>) {
    if !only.is_empty() {
        return (only, Vec::new());
    }
    let all = if is_against { against::ROWS.to_vec() } else { Row::value_variants().to_vec() };
    all.into_iter().partition(|row| has_postgres || *row != Row::InitiatePostgres)
}

/// Returns true if the run fails because of this line.
fn fails(line: &TableLine, strict: bool) -> bool {
    !line.wrong.is_empty() || strict && !line.holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Goal;

    #[test]
    fn leaves_out_rows_that_need_a_server() {
        let (measured, left_out) = rows(Vec::new(), false, false);
        assert_eq!((measured.len(), left_out), (Row::value_variants().len() - 1, vec![Row::InitiatePostgres]));
        assert_eq!(Row::InitiatePostgres.name(), "initiate-postgres");
        assert_eq!(rows(Vec::new(), true, false), (Row::value_variants().to_vec(), Vec::new()));
        assert_eq!(rows(Vec::new(), false, true), (vec![Row::Initiate, Row::Complete], vec![Row::InitiatePostgres]));
        // A row that is named fails then, and the error says why.
        let named = vec![Row::InitiatePostgres];
        assert_eq!(rows(named.clone(), false, false), (named, Vec::new()));
    }

    #[test]
    fn wrong_results_always_fail_and_missed_goals_only_if_strict() {
        let line = |figure| TableLine::new("complete payments", figure, "/s", Goal::AtLeast(300.0));
        let lost = || vec!["1 is lost".to_owned()];
        for (line, fails_always, fails_strictly) in [
            (line(300.0), false, false),
            (line(299.0), false, true),
            (line(300.0).wrong(lost()), true, true),
            (line(300.0).beside("a bare handler", 1_500.0).ratio_goal(Goal::AtLeast(0.3)), false, true),
            (line(300.0).unless(vec!["not durable: fsync = off".to_owned()]), false, true),
        ] {
            assert_eq!([fails(&line, false), fails(&line, true)], [fails_always, fails_strictly], "{line:?}");
        }
    }
}
