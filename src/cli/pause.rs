//! `payferry pause list|set|lift`.

use std::process::ExitCode;

use payferry_accounts::tenants;
use payferry_actors::pauses::{self, Scope};
use payferry_httpkit::read;
use payferry_journal::audit::Actor;

use super::database::DatabaseArgs;
use super::now;
use crate::config::Config;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List all pauses with their time and reason.
    #[command(after_help = "Example:\n  payferry pause list --data-dir payferry-data")]
    List {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Pause a scope. A running service applies it within a second. Work in progress is completed; queued work is kept.
    #[command(after_help = "Examples:
  payferry pause set chain:base --reason 'its endpoint forges logs' --data-dir payferry-data
  payferry pause set psp:psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --reason 'contract ended' --database-url payferry.db
  payferry pause set sending --reason 'a key may have leaked' --database-url payferry.db
  payferry pause set settlement:polygon --reason 'gas is dear' --database-url payferry.db")]
    Set {
        /// chain:<chain>, psp:<psp_id>, settlement, settlement:<chain>, sending or sending:<chain>.
        scope: Scope,
        /// Reason of the pause, recorded in the audit log.
        #[arg(long, value_parser = reason)]
        reason: String,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Lift a pause. Safe to repeat.
    #[command(after_help = "Example:\n  payferry pause lift chain:base --data-dir payferry-data")]
    Lift {
        /// Scope, as shown by `pause list`.
        scope: Scope,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

fn reason(text: &str) -> Result<String, String> {
    read::text(&text.into()).map_err(|fault| fault.message.into_owned())
}

pub(super) async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { database } => {
            let held = pauses::load(&database.open(&config).await?).await?;
            for (scope, pause) in &held {
                println!("{scope}  since {}  {}", pause.since, pause.reason);
            }
            if held.is_empty() {
                println!("nothing is paused");
            }
        }
        Command::Set { scope, reason, database } => {
            let database = database.open(&config).await?;
            if let Scope::Psp(psp_id) = scope {
                tenants::find_psp(&database, psp_id).await?;
            }
            let transaction = database.begin().await?;
            let pause = pauses::set(&transaction, scope, &reason, &Actor::Operator, now()).await?;
            transaction.commit().await?;
            println!("{scope} is paused since {}: {}", pause.since, pause.reason);
        }
        Command::Lift { scope, database } => {
            let transaction = database.open(&config).await?.begin().await?;
            let lifted = pauses::lift(&transaction, scope, &Actor::Operator, now()).await?;
            transaction.commit().await?;
            match lifted {
                Some(pause) => println!("{scope} is resumed; it was paused since {}", pause.since),
                None => println!("{scope} was not paused"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
