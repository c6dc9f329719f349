//! `payferry key create|list|revoke`.

use std::process::ExitCode;

use payferry_accounts::tenants::{self, EXPIRES_DAYS_MAX, KeyMaker, KeyOrder, Name, NewKey, Slice};
use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_entities::Database;
use payferry_journal::audit::Actor;

use super::database::DatabaseArgs;
use super::{now, one_of};
use crate::config::Config;

/// API keys per page.
const PAGE: usize = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create an API key and print it. The key is printed only once and is stored only as a keyed hash.
    #[command(after_help = "Examples:
  payferry key create --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --scope full --expires never --data-dir payferry-data
  payferry key create --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --name reports --scope read --expires 90 \\
      --database-url postgres://payferry:secret@localhost/payferry")]
    Create {
        /// PSP that owns the key.
        #[arg(long)]
        psp: PspId,
        /// Name of the key, for example its purpose.
        #[arg(long)]
        name: Option<Name>,
        /// Scopes of the key, separated by commas.
        #[arg(long, required = true, value_delimiter = ',', value_parser = one_of(SCOPES))]
        scope: Vec<KeyScope>,
        /// Days until the key expires, or `never`.
        #[arg(long, alias = "expires-days", value_name = "DAYS", value_parser = expiry)]
        expires: Expiry,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List API keys, without their secrets.
    #[command(
        after_help = "Example:\n  payferry key list --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --data-dir payferry-data"
    )]
    List {
        /// Only keys of this PSP [default: all PSPs].
        #[arg(long)]
        psp: Option<PspId>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Revoke a key at once. Safe to repeat.
    #[command(after_help = "Example:\n  payferry key revoke key_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --data-dir payferry-data")]
    Revoke {
        /// Id of the key, as shown by `key list`.
        key_id: KeyId,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// Days until a key expires; `None` if it never does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry(Option<u32>);

fn expiry(text: &str) -> Result<Expiry, String> {
    if text == "never" {
        return Ok(Expiry(None));
    }
    let days = text.parse().ok().filter(|days| (1..=EXPIRES_DAYS_MAX).contains(days));
    let days = days.ok_or_else(|| format!("must be `never` or a number of days between 1 and {EXPIRES_DAYS_MAX}"))?;
    Ok(Expiry(Some(days)))
}

/// The scopes, with their permissions in words.
const SCOPES: &[(KeyScope, &str, &str)] = &[
    (KeyScope::Read, "read", "Read everything of the PSP"),
    (KeyScope::Payments, "payments", "Make and change merchants and payments"),
    (KeyScope::Customers, "customers", "Make and change customers"),
    (KeyScope::Money, "money", "Move money out"),
    (KeyScope::Webhooks, "webhooks", "Change where webhooks go"),
    (KeyScope::Full, "full", "All of these"),
];

pub(super) async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { psp, name, scope, expires, database } => {
            let (sealer, mode) = (database.sealer(&config)?, database.mode(&config));
            let database = database.open(&config).await?;
            let new = NewKey { name, scopes: scope, expires_days: expires.0 };
            let maker = KeyMaker { sealer: &sealer, mode, by: &Actor::Operator, now: now() };
            let (_, key) = tenants::create_key(&database, &maker, psp, new).await?;
            println!("{}", key.expose());
        }
        Command::List { psp, database } => list(&database.open(&config).await?, psp).await?,
        Command::Revoke { key_id, database } => {
            let database = database.open(&config).await?;
            let key = tenants::revoke_key(&database, None, key_id, &Actor::Operator, now()).await?;
            println!("{} is revoked; a running service refuses it within a second", key.id);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(database: &Database, psp: Option<PspId>) -> anyhow::Result<()> {
    let moment = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
    for offset in (0..).step_by(PAGE) {
        let slice = Slice { limit: PAGE as u64, offset, after: None };
        let (total, keys) = tenants::list_keys(database, psp, KeyOrder::OldestFirst, slice).await?;
        for key in keys {
            println!(
                "{}  {}  {}  scopes {}  expires {}  last used {}  {}",
                key.id,
                key.state(now()).as_str(),
                key.psp_id,
                serde_json::to_string(&key.scopes)?,
                moment(key.expires_at),
                moment(key.last_used_at),
                key.name
            );
        }
        if offset + PAGE as u64 >= total {
            break;
        }
    }
    Ok(())
}
