//! `payferry operator create|list|revoke`.

use std::process::ExitCode;

use payferry_accounts::operators::{self, OperatorName, OperatorRole};

use super::database::DatabaseArgs;
use super::{now, one_of};
use crate::config::Config;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create an operator and print its token. The token is printed only once and is stored only as a keyed hash.
    #[command(after_help = "Examples:
  payferry operator create alice --role operator --data-dir payferry-data
  payferry operator create bob --role viewer --database-url postgres://payferry:secret@localhost/payferry")]
    Create {
        /// Name of the operator, as in the audit log.
        name: OperatorName,
        /// Permissions of the operator. Each role includes the ones before it.
        #[arg(long, value_parser = one_of(ROLES))]
        role: OperatorRole,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List operators, without their tokens. The holder of the shared token, `admin`, is not listed.
    #[command(after_help = "Example:\n  payferry operator list --data-dir payferry-data")]
    List {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Revoke an operator and end its sessions at once. Safe to repeat.
    #[command(after_help = "Example:\n  payferry operator revoke alice --data-dir payferry-data")]
    Revoke {
        /// Name of the operator, as shown by `operator list`.
        name: OperatorName,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// The roles, with their permissions in words.
const ROLES: &[(OperatorRole, &str, &str)] = &[
    (OperatorRole::Viewer, "viewer", "Read everything"),
    (OperatorRole::Operator, "operator", "Also pause, release and decide"),
    (OperatorRole::Admin, "admin", "Also change limits, wallets, keys and PSPs"),
];

pub(super) async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { name, role, database } => {
            let sealer = database.sealer(&config)?;
            let database = database.open(&config).await?;
            println!("{}", operators::create(&database, &sealer, name, role, now()).await?);
        }
        Command::List { database } => {
            for operator in operators::list(&database.open(&config).await?).await? {
                let state = operator.revoked_at.map_or_else(|| "active".to_owned(), |at| format!("revoked {at}"));
                println!("{}  {}  created {}  {state}", operator.name, operator.role, operator.created_at);
            }
        }
        Command::Revoke { name, database } => {
            let operator = operators::revoke(&database.open(&config).await?, name, now()).await?;
            println!("{} is revoked; its token and its sessions are refused from now on", operator.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}
