//! `payferry bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use url::Url;

use super::signals::Signals;
use crate::{self, Line, Options, Row, render};

/// How long a measurement takes with `--quick`.
const QUICK: Duration = Duration::from_secs(1);
/// How long a measurement takes unless asked otherwise.
const SECONDS_DEFAULT: u64 = 10;
/// The exit code after ctrl-c.
const INTERRUPTED: u8 = 130;
/// The longest measurement.
const SECONDS_MAX: u64 = 600;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry bench
  payferry bench --only initiate --seconds 20 --folder target
  payferry bench --only initiate-postgres --postgres postgres://postgres@127.0.0.1:5432

Each service is a process of its own on a free port of this machine, with its data in a folder that is removed; of two that take
turns, whoever has none is held. Let nothing else run beside it. Where the temporary folder is memory (tmpfs), to be durable
costs nothing: name a folder on a disk then. The exit code is 1 if a result is wrong (a payment is lost, say), and with
--strict if a goal is missed.")]
pub(super) struct Args {
    /// Only these rows, with commas between.
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<Row>,
    /// How long each measurement takes.
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT, conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Small and short, to see that it works: the figures mean little.
    #[arg(long)]
    quick: bool,
    /// End with exit code 1 if a goal is missed, too.
    #[arg(long)]
    strict: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// A PostgreSQL server on which databases may be made; without it, rows that need one are left out.
    #[arg(long, value_name = "URL", env = "PAYFERRY_BENCH_POSTGRES", hide_env_values = true)]
    postgres: Option<Url>,
    /// Where data is kept meanwhile: the disk that is measured [default: the temporary folder].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Serve what payments are compared with.
    #[arg(long, hide = true)]
    bound_server: bool,
    /// On this database.
    #[arg(long, value_name = "URL", env = bench::BOUND_DATABASE_URL, hide_env_values = true, hide = true)]
    bound_database_url: Option<String>,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.bound_server {
        let database_url = args.bound_database_url.as_deref();
        let database_url = database_url.with_context(|| format!("{} is missing", bench::BOUND_DATABASE_URL))?;
        let mut signals = Signals::and_end_of_stdin()?;
        tokio::select! {
            served = bench::serve_bound(database_url) => served?,
            () = signals.next() => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (rows, left_out) = rows(args.only, args.postgres.is_some());
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.into_iter().map(Row::name).collect();
        eprintln!("left out, since --postgres URL is missing: {}", names.join(", "));
    }
    let options = Options {
        rows,
        time: if args.quick { QUICK } else { Duration::from_secs(args.seconds) },
        quick: args.quick,
        postgres: args.postgres,
        folder: args.folder,
    };
    let mut signals = Signals::new()?;
    let told = |row: &str| eprintln!("measuring {row}");
    let lines = tokio::select! {
        lines = bench::run(&options, told) => lines?,
        // What was started and made is ended and removed as its owners are dropped, but for what is on a server.
        () = signals.next() => {
            bench::clean_up(&options).await?;
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        print!("{}", render(&lines));
    }
    if args.strict {
        for line in lines.iter().filter(|line| !line.holds) {
            eprintln!("missed: {}", line.summary());
        }
    }
    Ok(if lines.iter().any(|line| fails(line, args.strict)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is measured, and what is left out; nothing is that was asked for by name.
fn rows(only: Vec<Row>, has_postgres: bool) -> (Vec<Row>, Vec<Row>) {
    if only.is_empty() {
        return Row::ALL.into_iter().partition(|row| has_postgres || *row != Row::InitiatePostgres);
    }
    (only, Vec::new())
}

/// Whether the run fails for this line.
fn fails(line: &Line, strict: bool) -> bool {
    !line.wrong.is_empty() || strict && !line.holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Goal;

    #[test]
    fn without_a_server_the_rows_that_need_one_are_left_out_and_named() {
        let (measured, left_out) = rows(Vec::new(), false);
        assert_eq!((measured.len(), left_out), (Row::ALL.len() - 1, vec![Row::InitiatePostgres]));
        assert_eq!(Row::InitiatePostgres.name(), "initiate-postgres");
        assert_eq!(rows(Vec::new(), true), (Row::ALL.to_vec(), Vec::new()));
        // It fails then, and says why.
        let asked = vec![Row::InitiatePostgres];
        assert_eq!(rows(asked.clone(), false), (asked, Vec::new()));
    }

    #[test]
    fn what_is_wrong_fails_always_and_what_is_missed_only_where_that_is_asked_for() {
        let line = |figure| Line::new("complete payments", figure, "/s", Goal::AtLeast(300.0));
        let lost = || vec!["1 is lost".to_owned()];
        for (line, fails_at_all, fails_strictly) in [
            (line(300.0), false, false),
            (line(299.0), false, true),
            (line(300.0).wrong(lost()), true, true),
            (line(300.0).beside("a bare handler", 1_500.0).ratio_goal(Goal::AtLeast(0.3)), false, true),
            (line(300.0).unless(vec!["not durable: fsync = off".to_owned()]), false, true),
        ] {
            assert_eq!([fails(&line, false), fails(&line, true)], [fails_at_all, fails_strictly], "{line:?}");
        }
    }
}
