//! `cargo run -p payferry-harness --bin kill`: long runs in which the service is killed repeatedly.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use payferry_harness::database::TestDatabase;
use payferry_harness::kill::{Chains, Run};
use payferry_harness::nodes::NodesPlan;
use payferry_harness::process::Binary;
use payferry_testkit::progress::Progress;

/// Kill `payferry serve` repeatedly under load, then check that nothing was lost, counted twice or left unfinished.
#[derive(Debug, Parser)]
#[command(
    max_term_width = 100,
    after_help = "Examples:
  cargo build --release && cargo run --release -p payferry-harness --bin kill -- --kills 1000
  tests/with-postgres cargo run --release -p payferry-harness --bin kill -- --kills 1000 --database postgres
  tests/with-postgres cargo run --release -p payferry-harness --bin kill -- --kills 120 --nodes 3 --database postgres
  cargo run -p payferry-harness --bin kill -- --kills 20 --seed 7 --chains anvil --binary target/debug/payferry"
)]
struct Args {
    /// Number of kills.
    #[arg(long, default_value_t = 1_000)]
    kills: usize,
    /// Number of nodes that share a PostgreSQL database. With several, a quarter of the kills leave a node away until others
    /// have taken over, a sixth freeze it instead, and a tenth restart it.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// sqlite (a new file), postgres (a new database on the server named by PAYFERRY_TEST_POSTGRES), or the URL of an
    /// empty database.
    #[arg(long, default_value = "sqlite")]
    database: String,
    /// Path of the service's binary.
    #[arg(long, default_value = "target/release/payferry")]
    binary: PathBuf,
    /// Seed, to repeat the random choices of a run [default: random].
    #[arg(long)]
    seed: Option<u64>,
    /// Payments per second, such as 60/s.
    #[arg(long, default_value = "60/s", value_parser = rate)]
    rate: f64,
    /// Chain implementation.
    #[arg(long, value_enum, default_value = "devchain")]
    chains: Chains,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.trim_end_matches("/s").parse().map_err(|_| "expected payments per second, such as 60/s")?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("must be above zero".to_owned()) }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if !args.binary.exists() {
        eprintln!("error: {} does not exist; build it, or name another binary with --binary", args.binary.display());
        return ExitCode::from(2);
    }
    if args.nodes > 1 && args.database == "sqlite" {
        eprintln!("error: several nodes need PostgreSQL: add --database postgres");
        return ExitCode::from(2);
    }
    let (database, url) = match args.database.as_str() {
        "sqlite" => own(TestDatabase::sqlite()),
        "postgres" => own(TestDatabase::postgres().await),
        url => (None, url.to_owned()),
    };
    let progress = Progress::shown();
    progress.begin("kills", u64::try_from(args.kills).unwrap_or(u64::MAX));

    let mut run = Run::new(Binary::at(args.binary), args.kills, &url);
    (run.chains, run.rate, run.progress) = (args.chains, args.rate, progress.clone());
    run.seed = args.seed.unwrap_or(run.seed);
    run.nodes = (args.nodes > 1).then(|| NodesPlan::of(args.nodes, args.kills));
    let report = run.report().await;
    progress.done();
    drop(database);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
    } else {
        print!("{report}");
    }
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn own(database: TestDatabase) -> (Option<TestDatabase>, String) {
    let url = database.url().to_owned();
    (Some(database), url)
}
