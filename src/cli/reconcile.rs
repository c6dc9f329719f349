//! `payferry reconcile`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use payferry_actors::chain::{RereadResult, SentSearch, post_unknown_sent, reread};
use payferry_actors::pauses::{self, Scope};
use payferry_actors::reconcile::{self, Difference, FundsPosition, Options, ReconcileReport};
use payferry_domain::{Amount, Chain};
use payferry_entities::{Database, transfers};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_runtime::clock::Clock;
use serde_json::{Value, json};

use super::database::DatabaseArgs;
use crate::config::Config;
#[cfg(feature = "sandbox")]
use crate::sandbox::SharedChains;
use crate::service::{chains, checkpoint, contract};

/// Options of `reconcile`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry reconcile --config payferry.toml
  payferry reconcile --config payferry.toml --thorough --json | jq .differences
  payferry reconcile --config payferry.toml --chain base --from-block 22000000 --to-block 22003600
  payferry reconcile --data-dir payferry-data

Compares vault balances on the chains with the ledger, and the running balances with their postings. Runs beside the
service: money in transit is excluded, and a difference is checked again before it is reported. Exit code 1 if there is a
difference or a chain could not be read.

First posts outbound transfers that only the chain knows, if the service has paused for them (after an older copy of the
database was restored), and lifts this pause. Exit code 1 if the pause is still needed.

With a block range, these blocks are rescanned first. Missed transfers to payment wallets are recorded, and the running
service applies them within seconds. Only final blocks are scanned: other blocks can still be reorged, and the service
watches those itself.

With a sandbox's data folder, the sandbox's chains are read: through the running sandbox, otherwise from the folder.")]
pub(super) struct Args {
    /// Check every token on every chain for each payment wallet, not only the expected balances.
    #[arg(long)]
    thorough: bool,
    /// Report differences of the treasury too. Use this only if no money was withdrawn from the treasury.
    #[arg(long)]
    treasury_kept: bool,
    /// Chain to rescan.
    #[arg(long, value_name = "CHAIN", requires_all = ["from_block", "to_block"])]
    chain: Option<Chain>,
    /// First block to rescan.
    #[arg(long, value_name = "NUMBER", requires = "chain")]
    from_block: Option<u64>,
    /// Last block to rescan; it must be final.
    #[arg(long, value_name = "NUMBER", requires = "chain")]
    to_block: Option<u64>,
    /// Seconds to wait before a difference is checked again.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pause_secs: u64,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let database = args.database.open(&config).await?;
    #[cfg(feature = "sandbox")]
    if let Some(folder) = args.database.data_dir() {
        let beside = SharedChains::open(folder).await?;
        let done = look(&args, &database, &beside.chains).await;
        beside.close().await;
        database.close().await?;
        return done;
    }
    let chains = chains::configured(&config, contract(&config)?)?;
    let chains: Vec<(ChainSpec, ChainClient)> = chains.into_iter().map(|chain| (chain.spec, chain.client)).collect();
    let done = look(&args, &database, &chains).await;
    database.close().await?;
    done
}

async fn look(args: &Args, database: &Database, chains: &[(ChainSpec, ChainClient)]) -> anyhow::Result<ExitCode> {
    let again = match (args.chain, args.from_block, args.to_block) {
        (Some(chain), Some(from), Some(to)) => Some(read_again(database, chains, chain, (from, to), args.json).await?),
        _ => None,
    };
    let searches = search_unknown_sent(database, chains, args.json).await?;
    let pause = Duration::from_secs(args.pause_secs);
    let (thorough, treasury_kept) = (args.thorough, args.treasury_kept);
    let options = Options { thorough, treasury_kept, pause, ..Options::default() };
    let watch = |payments: u64| {
        if !args.json {
            eprintln!("{payments} payments");
        }
    };
    let report = reconcile::reconcile(database, chains, &Clock::default(), options, watch).await?;
    if args.json {
        let mut line = serde_json::to_value(&report)?;
        line["is_clean"] = report.is_clean().into();
        line["reread"] = again.as_ref().map_or(Value::Null, |again| {
            json!({ "blocks": again.blocks, "recorded": rows(&again.recorded), "otherwise": rows(&again.otherwise) })
        });
        line["unknown_sent"] = searches.iter().map(|(scope, search)| search_json(*scope, search)).collect();
        println!("{line}");
    } else {
        print(&report, chains);
    }
    let is_lifted = searches.iter().all(|(_, search)| search.waits.is_none());
    Ok(if report.is_clean() && is_lifted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Searches each chain on which outbound transfers are paused because the database does not know all of them.
async fn search_unknown_sent(
    database: &Database,
    chains: &[(ChainSpec, ChainClient)],
    json: bool,
) -> anyhow::Result<Vec<(Scope, SentSearch)>> {
    let (mut searches, checkpoint) = (Vec::new(), checkpoint()?);
    for scope in pauses::load(database).await?.into_keys() {
        let Scope::Unreconciled(chain, account) = scope else { continue };
        let watch = |block: u64| {
            if !json {
                eprintln!("{chain} up to block {block}");
            }
        };
        let waits = |why: String| SentSearch { waits: Some(why), ..SentSearch::default() };
        let search = match chains.iter().find(|(spec, _)| spec.chain == chain) {
            Some((spec, client)) => {
                let clock = Clock::default();
                let search = post_unknown_sent(spec, client, database, &clock, account, &*checkpoint, watch).await;
                search.unwrap_or_else(|error| waits(error.to_string()))
            }
            None => waits(format!("{chain} is not configured")),
        };
        if !json {
            print_search(scope, &search);
        }
        searches.push((scope, search));
    }
    Ok(searches)
}

fn print_search(scope: Scope, search: &SentSearch) {
    for one in &search.posted {
        println!("posted   {} of {} to {} for {}", one.tx_hash, Amount(one.amount), one.to, one.psp_id);
    }
    if search.foreign > 0 {
        println!("ignored  {} outbound transfers from vaults that the database does not have", search.foreign);
    }
    match &search.waits {
        Some(why) => println!("paused   {scope}: {why}"),
        None => println!("lifted   {scope}: {} blocks searched", search.blocks),
    }
}

fn search_json(scope: Scope, search: &SentSearch) -> Value {
    let posted = search.posted.iter().map(|one| {
        json!({ "psp_id": one.psp_id, "payment": one.payment, "tx_hash": one.tx_hash, "log_index": one.log_index,
            "token_address": one.token_address, "to": one.to, "amount": Amount(one.amount).to_string() })
    });
    json!({ "scope": scope.to_string(), "blocks": search.blocks, "posted": posted.collect::<Value>(),
        "foreign": search.foreign, "waits": search.waits })
}

async fn read_again(
    database: &Database,
    chains: &[(ChainSpec, ChainClient)],
    chain: Chain,
    (from, to): (u64, u64),
    json: bool,
) -> anyhow::Result<RereadResult> {
    if from > to {
        bail!("--from-block {from} is after --to-block {to}");
    }
    let side = chains.iter().find(|(spec, _)| spec.chain == chain);
    let (spec, client) = side.with_context(|| format!("--chain: {chain} is not configured"))?;
    let watch = |block: u64| {
        if !json {
            eprintln!("{chain} up to block {block}");
        }
    };
    let again = reread(spec, client, database, &Clock::default(), (from, to), watch).await?;
    if !json {
        println!("{} blocks of {chain} rescanned: {} transfers were missing", again.blocks, again.recorded.len());
        for row in &again.recorded {
            println!("  recorded   {} of {} for {}", row.tx_hash, Amount(row.amount), row.payment_id);
        }
        for row in &again.otherwise {
            println!("  otherwise  {} is recorded in another block or as reorged, for {}", row.tx_hash, row.payment_id);
        }
    }
    Ok(again)
}

fn rows(transfers: &[transfers::Model]) -> Vec<Value> {
    let row = |row: &transfers::Model| {
        json!({ "payment_id": row.payment_id, "tx_hash": row.tx_hash, "log_index": row.log_index,
            "block_number": row.block_number, "amount": Amount(row.amount).to_string() })
    };
    transfers.iter().map(row).collect()
}

fn print(report: &ReconcileReport, chains: &[(ChainSpec, ChainClient)]) {
    println!("{:<16}  {:<9}  {:>20}  {:>20}", "", "", "ledger", "on the chain");
    for (asset, sums) in &report.sums {
        for (whose, ledger, on_chain) in [
            ("payments", sums.payments_ledger, sums.payments_on_chain),
            ("PSPs", sums.psps_ledger, sums.psps_on_chain),
            ("treasury", sums.treasury_ledger, sums.treasury_on_chain),
        ] {
            println!("{asset:<16}  {whose:<9}  {:>20}  {:>20}", Amount(ledger), Amount(on_chain));
        }
    }
    for difference in &report.differences {
        println!("{}", line(difference, chains));
    }
    for one in &report.unbalanced {
        println!(
            "differs  {} on {} of {}: postings say {}, the balance {}",
            one.psp_id,
            one.chain,
            one.token_address,
            Amount(one.posted),
            Amount(one.balance)
        );
    }
    for (chain, why) in &report.unread {
        println!("unread   {chain}: {why}");
    }
    println!(
        "\n{} payments and {} balances checked: {} differ, {} are in progress, {} hold money set aside",
        report.payments,
        report.balances,
        report.differences_total + report.unbalanced.len() as u64,
        report.under_way,
        report.set_aside
    );
    println!("waited {} ms for RPC answers", report.chains_ms);
}

fn line(difference: &Difference, chains: &[(ChainSpec, ChainClient)]) -> String {
    let FundsPosition { owner, chain, token_address, .. } = &difference.place;
    let spec = chains.iter().map(|(spec, _)| spec).find(|spec| spec.chain == *chain);
    format!("differs  {owner} {}", difference.words(spec.and_then(|spec| spec.token_at(*token_address))))
}
