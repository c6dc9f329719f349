//! `payferry audit`.

use std::process::ExitCode;

use payferry_accounts::audit::{self, AuditActorKind, ENTRIES_MAX, Filter};
use payferry_domain::{PspId, Timestamp};

use super::database::DatabaseArgs;
use crate::config::Config;

/// Options of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry audit --data-dir payferry-data
  payferry audit --subject cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --config payferry.toml
  payferry audit --actor-kind operator --from 2026-11-01T00:00:00Z --json | jq -r '.action'

Entries are in the order in which they were written and are never removed. To continue, pass the last number that you
read as `--after`.")]
pub(super) struct Args {
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
    /// Only entries from this time on, such as 2026-11-22T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
    /// Only entries before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Timestamp>,
    /// Only entries after this number.
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
    /// Maximum number of entries [default: all].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print one line of JSON per entry.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let Args { subject, psp, actor_kind, action, from, to, after, limit, json, database } = args;
    let mut filter = Filter { subject, psp_id: psp, actor_kind, action, from, to, after };
    let database = database.open(&config).await?;
    if !json {
        println!("{:>8}  {:<24}  {:<38}  {:<28}  {:<29}  {:<30}  detail", "number", "at", "by", "action", "of", "psp");
    }
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let page = audit::read(database.reader(), &filter, left.min(ENTRIES_MAX)).await?;
        for entry in &page.entries {
            if json {
                println!("{}", serde_json::to_string(entry)?);
            } else {
                println!("{entry}");
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

fn moment(text: &str) -> Result<Timestamp, String> {
    let expected = |_| "expected an ISO 8601 time, such as 2026-11-22T00:00:00Z".to_owned();
    chrono::DateTime::parse_from_rfc3339(text).map(|at| at.to_utc().into()).map_err(expected)
}
