//! `payferry demo`.

use std::process::ExitCode;
use std::time::Duration;

use crate::config::Config;
use crate::sandbox::{Sandbox, SandboxOptions};

/// Most payments of the crowd.
const PAYMENTS_MAX: u32 = 10_000;

/// Options of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry demo
  payferry demo --payments 5000
  payferry demo --database-url postgres://payferry:secret@localhost/demo

Exit code 1 and a line that says what was wrong, if anything is not as expected.")]
pub(super) struct Args {
    /// Payments that are made and paid at once towards the end.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=i64::from(PAYMENTS_MAX)))]
    payments: u32,
    /// Time between blocks, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..=2_000))]
    block_time_ms: u64,
    /// An empty database in place of a temporary SQLite: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = "PAYFERRY_SANDBOX_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

/// What an actor says that panics because the sandbox's route asked it to.
const ON_PURPOSE: &str = "on purpose";

/// Says nothing of panics that a story asked for, and everything of others.
fn expect_panics_on_purpose() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload_as_str().is_some_and(|words| words.contains(ON_PURPOSE)) {
            usual(panic);
        }
    }));
}

pub(super) async fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    expect_panics_on_purpose();
    let any = |listen: &mut std::net::SocketAddr| listen.set_port(0);
    any(&mut config.server.listen);
    any(&mut config.server.operator_listen);
    config.server.public_url = None;
    let options = SandboxOptions {
        block_time: Duration::from_millis(args.block_time_ms),
        database_url: args.database_url,
        ..SandboxOptions::ephemeral()
    };
    let sandbox = Sandbox::start(options, &config).await?;
    let played = tokio::select! {
        played = crate::demo::play(sandbox.ready(), usize::try_from(args.payments)?) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    sandbox.stop().await;
    played.map(|()| ExitCode::SUCCESS)
}
