//! `payferry migrate`.

use std::process::ExitCode;

use payferry_migration::{migrate, pending};

use super::database::DatabaseArgs;
use crate::config::Config;

/// Options of `migrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry migrate --database-url payferry.db
  payferry migrate --database-url postgres://payferry:secret@localhost/payferry
  payferry migrate --database-url payferry.db --check    # exit code 1 if a migration is pending")]
pub(super) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Change nothing; list the pending migrations, and fail if there are any.
    #[arg(long)]
    check: bool,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let database = args.database.open_any(&config).await?;
    let connection = database.long_timeout();
    let pending = if args.check { pending(&connection).await? } else { migrate(&connection).await? };
    for name in &pending {
        println!("{} {name}", if args.check { "missing" } else { "applied" });
    }
    if pending.is_empty() {
        println!("the tables are up to date");
    }
    database.close().await?;
    Ok(if args.check && !pending.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
