//! The subcommand `demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use futures::future::LocalBoxFuture;
use payferry_testkit::service::{ChildSandboxOptions, Service};

/// Largest number of payments of the burst.
const PAYMENTS_MAX: u32 = 10_000;

/// Options of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry demo
  payferry demo --payments 5000
  payferry demo --database-url postgres://payferry:secret@localhost/demo

Exit code 1 and a line that names the difference if anything is not as expected.")]
pub struct Args {
    /// Payments that are made and paid at once towards the end.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=i64::from(PAYMENTS_MAX)))]
    payments: u32,
    /// Time between blocks, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..=2_000))]
    block_time_ms: u64,
    /// Empty database, instead of a temporary SQLite file: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = "PAYFERRY_SANDBOX_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

/// Starts a sandbox as a child process, plays the stories and stops the sandbox. Boxed: a caller in another crate would
/// otherwise compile the whole tool again.
pub fn run(args: Args, config_file: Option<PathBuf>) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(play_in_sandbox(args, config_file))
}

async fn play_in_sandbox(args: Args, config_file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let options = ChildSandboxOptions {
        block_time: Some(Duration::from_millis(args.block_time_ms)),
        database_url: args.database_url,
        config: config_file,
        ..ChildSandboxOptions::default()
    };
    let sandbox = Service::sandbox(&options).await?;
    let played = tokio::select! {
        played = crate::play(sandbox.ready(), usize::try_from(args.payments)?) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    let stopped = sandbox.stop().await;
    played?;
    stopped.map(|()| ExitCode::SUCCESS)
}
