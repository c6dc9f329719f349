//! `payferry audit`: lists, verifies and exports the audit log.

use std::collections::HashMap;
use std::process::ExitCode;

use payferry_accounts::audit::{self, AuditActorKind, AuditEntry, ENTRIES_MAX, Filter};
use payferry_domain::{PspId, Timestamp};
use payferry_journal::audit::chain::{self, ChainReport};
use serde::Serialize;

use super::database::DatabaseArgs;
use crate::config::Config;

/// Characters of a SHA-256 hash.
const HASH_CHARS: usize = 64;

/// Options of `audit`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  payferry audit --data-dir payferry-data
  payferry audit --subject cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --config payferry.toml
  payferry audit --actor-kind operator --from 2026-11-01T00:00:00Z --json | jq -r '.action'
  payferry audit verify --config payferry.toml
  payferry audit export --config payferry.toml > audit.jsonl

Entries are in the order in which they were written and are never removed. To continue, pass the last number that you
read as `--after`."
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    entries: EntriesArgs,
    /// Print one line of JSON per entry.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check that no entry was changed, moved or deleted.
    Verify(VerifyArgs),
    /// Print one line of JSON per entry, with its position and hash in the chain.
    #[command(after_help = "Example:
  payferry audit export --config payferry.toml --from 2026-11-01T00:00:00Z > audit.jsonl")]
    Export(EntriesArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry audit verify --config payferry.toml
  payferry audit verify --expect 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 --config payferry.toml

The service logs the newest hash once an hour. With that hash, `--expect` also finds a log whose end was cut off and a
chain that was rewritten as a whole. Exit code 1 if the log was changed.")]
struct VerifyArgs {
    /// A hash that the service logged, or that `verify` printed before.
    #[arg(long, value_name = "HASH", value_parser = hash)]
    expect: Option<String>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, clap::Args)]
struct EntriesArgs {
    /// Only entries of this object, usually a customer id.
    #[arg(long, visible_alias = "customer", value_name = "ID")]
    subject: Option<String>,
    /// Only entries of this PSP's objects.
    #[arg(long)]
    psp: Option<PspId>,
    /// Only entries by actors of this kind: api_key, operator, provider, customer, service.
    #[arg(long, value_name = "KIND")]
    actor_kind: Option<AuditActorKind>,
    /// Only entries with this action, such as customer.deactivated.
    #[arg(long)]
    action: Option<String>,
    /// Only entries from this time on: a date (00:00 UTC) or an ISO 8601 time, such as 2026-11-22T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Only entries before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// Only entries after this number.
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
    /// Maximum number of entries [default: all].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::Verify(args)) => verify(args, &config).await,
        Some(Command::Export(args)) => list(args, Format::Export, &config).await,
        None => list(args.entries, if args.json { Format::Json } else { Format::Table }, &config).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Table,
    Json,
    Export,
}

/// An entry with its place in the chain; `None` until it is chained.
#[derive(Serialize)]
struct ExportedEntry<'a> {
    #[serde(flatten)]
    entry: &'a AuditEntry,
    position: Option<i64>,
    hash: Option<&'a str>,
}

async fn list(args: EntriesArgs, format: Format, config: &Config) -> anyhow::Result<ExitCode> {
    let EntriesArgs { subject, psp, actor_kind, action, from, to, after, limit, database } = args;
    let mut filter = Filter { subject, psp_id: psp, actor_kind, action, from, to, after };
    let database = database.open(config).await?;
    if format == Format::Table {
        println!(
            "{:>8}  {:<24}  {:<38}  {:<15}  {:<28}  {:<29}  {:<30}  detail",
            "number", "at", "by", "address", "action", "of", "psp"
        );
    }
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let page = audit::read(database.reader(), &filter, left.min(ENTRIES_MAX)).await?;
        let links = match format {
            Format::Export => chain::links(database.reader(), page.entries.iter().map(|entry| entry.number)).await?,
            Format::Table | Format::Json => HashMap::default(),
        };
        for entry in &page.entries {
            match format {
                Format::Table => println!("{entry}"),
                Format::Json => println!("{}", serde_json::to_string(entry)?),
                Format::Export => {
                    let link = links.get(&entry.number);
                    let (position, hash) = (link.map(|link| link.position), link.map(|link| link.hash.as_str()));
                    println!("{}", serde_json::to_string(&ExportedEntry { entry, position, hash })?);
                }
            }
        }
        left -= page.entries.len() as u64;
        filter.after = page.next_after;
        if page.next_after.is_none() {
            break;
        }
    }
    database.close().await?;
    Ok(ExitCode::SUCCESS)
}

async fn verify(args: VerifyArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let database = args.database.open(config).await?;
    let report = chain::verify(&database, args.expect.as_deref()).await?;
    database.close().await?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &ChainReport) {
    for finding in &report.findings {
        println!("{finding}");
    }
    let outcome = if report.findings.is_empty() { "the audit log is intact" } else { "the audit log was changed" };
    println!("{outcome}: {} entries are chained, {} not yet", report.chained, report.unchained);
    if let Some(newest) = &report.newest {
        println!("newest hash: {newest}");
    }
}

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == HASH_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { Ok(text.to_ascii_lowercase()) } else { Err("expected 64 hexadecimal digits".to_owned()) }
}
