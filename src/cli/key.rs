//! `payferry key create|list|revoke`.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_entities::{Database, api_keys, psps};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder, Set};

use super::database::DatabaseArgs;
use crate::config::Config;
use crate::keys::{ApiKey, Scope};

/// Longest name of a key, in characters.
const NAME_CHARS_MAX: usize = 200;
/// Longest life of a key that has an end, in days.
const EXPIRES_DAYS_MAX: u32 = 3_650;
const DAY_SECS: i64 = 86_400;

/// Options of `key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make an API key and print it. It is shown this once and stored only as a keyed hash.
    #[command(after_help = "Examples:
  payferry key create --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --data-dir payferry-data
  payferry key create --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --name reports --scope read --expires-days 90 \\
      --database-url postgres://payferry:secret@localhost/payferry")]
    Create {
        /// Whose it is.
        #[arg(long)]
        psp: PspId,
        /// What it is for.
        #[arg(long, default_value = "")]
        name: String,
        /// What it may do; several with commas.
        #[arg(long, value_delimiter = ',', default_value = "full")]
        scope: Vec<Scope>,
        /// Days until it is refused [default: never].
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(EXPIRES_DAYS_MAX)))]
        expires_days: Option<u32>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List API keys, without their secrets.
    #[command(
        after_help = "Example:\n  payferry key list --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --data-dir payferry-data"
    )]
    List {
        /// Whose [default: everybody's].
        #[arg(long)]
        psp: Option<PspId>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Refuse a key from now on. Repeatable.
    #[command(after_help = "Example:\n  payferry key revoke key_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --data-dir payferry-data")]
    Revoke {
        /// Which key: the id that `key list` shows.
        key_id: KeyId,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Create { psp, name, scope, expires_days, database } => {
            ensure!(name.chars().count() <= NAME_CHARS_MAX, "a key's name has at most {NAME_CHARS_MAX} characters");
            let (sealer, mode) = database.sealer(&config)?;
            let database = database.open(&config).await?;
            let known = psps::Entity::find_by_id(psp.to_string()).one(database.reader()).await?;
            known.with_context(|| format!("there is no PSP {psp}"))?;
            let key = ApiKey::generate(mode);
            let mut row = key.row(&sealer, psp, &name, &scope, now());
            row.expires_at = expires_days.map(|days| now().plus_secs(i64::from(days) * DAY_SECS).as_millis());
            api_keys::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await?;
            println!("{}", key.expose());
        }
        Command::List { psp, database } => list(&database.open(&config).await?, psp).await?,
        Command::Revoke { key_id, database } => revoke(&database.open(&config).await?, key_id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(database: &Database, psp: Option<PspId>) -> anyhow::Result<()> {
    let mut query = api_keys::Entity::find().order_by_asc(api_keys::Column::CreatedAt);
    if let Some(psp) = psp {
        query = query.filter(api_keys::Column::PspId.eq(psp.to_string()));
    }
    let moment = |at: Option<i64>| at.map_or_else(|| "never".to_owned(), |at| Timestamp(at).to_string());
    for row in query.all(database.reader()).await? {
        let state = match (row.revoked_at, row.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(at)) if at <= now().as_millis() => "expired",
            _ => "active",
        };
        println!(
            "{}  {state}  {}  scopes {}  last used {}  {}",
            row.id,
            row.psp_id,
            row.scopes,
            moment(row.last_used_at),
            row.name
        );
    }
    Ok(())
}

async fn revoke(database: &Database, id: KeyId) -> anyhow::Result<()> {
    let Some(row) = api_keys::Entity::find_by_id(id.to_string()).one(database.reader()).await? else {
        bail!("there is no key {id}");
    };
    if row.revoked_at.is_none() {
        let mut row = row.into_active_model();
        row.revoked_at = Set(Some(now().as_millis()));
        row.update(database.writer()).await?;
    }
    println!("{id} is revoked; a running service refuses it within a few seconds");
    Ok(())
}

fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}
