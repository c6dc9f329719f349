//! `payferry sandbox`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::signals::Signals;
use crate::config::Config;
use crate::sandbox::member::{self, DATABASE_URL_ENV, MEMBER_OPTION};
use crate::sandbox::{BLOCK_TIME_MS_DEFAULT, DEFAULT_FOLDER, Orders, Sandbox, SandboxOptions, SandboxReady};

/// Longest block time, milliseconds. A chain whose head is 30 s old counts as down.
const BLOCK_TIME_MS_MAX: u64 = 10_000;
/// Shortest block time, milliseconds.
const BLOCK_TIME_MS_MIN: u64 = 10;

/// Largest number of nodes.
const NODES_MAX: i64 = 9;

/// Options of `sandbox`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry sandbox
  payferry sandbox --ephemeral --listen 127.0.0.1:0 --operator-listen 127.0.0.1:0 --json
  payferry sandbox --data-dir /var/tmp/payferry --block-time-ms 100
  payferry sandbox --ephemeral --nodes 3 --database-url postgres://payferry@localhost/empty

Operator commands work beside it, for example:
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --withdrawal-wallet 0x... --data-dir payferry-data
  payferry pause set chain:base --reason 'test' --data-dir payferry-data

SIGINT (ctrl-c) or SIGTERM stops it gracefully within 10 s; a second signal stops it at once. No acknowledged data is
lost in either case: the next start on the same folder continues.")]
pub(super) struct Args {
    /// Listen address for PSPs and payers; port 0 selects a free port [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Listen address for the operator [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDRESS")]
    operator_listen: Option<SocketAddr>,
    /// Data folder: database, chains, clock and keys.
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    data_dir: PathBuf,
    /// Use a temporary folder that is removed at exit.
    #[arg(long, conflicts_with = "data_dir")]
    ephemeral: bool,
    /// Use another database than the folder's: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = DATABASE_URL_ENV, hide_env_values = true)]
    database_url: Option<String>,
    /// Time between blocks, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = BLOCK_TIME_MS_DEFAULT,
          value_parser = clap::value_parser!(u64).range(BLOCK_TIME_MS_MIN..=BLOCK_TIME_MS_MAX))]
    block_time_ms: u64,
    /// Number of nodes, each a process of its own. They share the database of `--database-url` (PostgreSQL), behind a
    /// proxy at the listen address.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=NODES_MAX))]
    nodes: u8,
    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    json: bool,
    /// Also stop when standard input closes: for a parent process that may be killed.
    #[arg(long)]
    until_stdin_closes: bool,
    /// Be a further node of the sandbox that started this process.
    #[arg(long = MEMBER_OPTION, hide = true)]
    member: bool,
}

pub(super) async fn run(args: Args, mut config: Config, config_file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    if let Some(listen) = args.operator_listen {
        config.server.operator_listen = listen;
    }
    if args.member {
        return run_member(&args, &config).await;
    }
    let mut program = vec![std::env::current_exe()?.into_os_string()];
    if let Some(file) = config_file {
        program.extend(["--config".into(), file.into_os_string()]);
    }
    let options = SandboxOptions {
        folder: (!args.ephemeral).then_some(args.data_dir),
        database_url: args.database_url,
        block_time: Duration::from_millis(args.block_time_ms),
        nodes: args.nodes.into(),
        program,
    };
    // Before the start: a caller that waits for the ready line may send a signal as soon as it appears.
    let mut signals = if args.until_stdin_closes { Signals::and_end_of_stdin()? } else { Signals::new()? };
    let sandbox = tokio::select! {
        sandbox = Sandbox::start(options, &config) => sandbox?,
        _ = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    if args.json {
        println!("{}", serde_json::to_string(sandbox.ready())?);
    } else {
        introduce(sandbox.ready(), &sandbox.folder().display().to_string(), args.ephemeral);
    }
    tokio::select! {
        _ = signals.next() => {}
        why = sandbox.writer_lost() => anyhow::bail!("{why}; this service has stopped writing, and ends"),
    }
    if !args.json {
        println!("\nStopping.");
    }
    signals.end_at_next();
    sandbox.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// Runs a member. A signal drains it, as a node of `serve`.
async fn run_member(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    let (orders, mut signals) = (Orders::from_stdin()?, Signals::new()?);
    let url = args.database_url.as_deref().context("a member needs the database")?;
    let drained = async {
        signals.next().await;
    };
    member::run(&args.data_dir, url, orders, config, drained).await?;
    Ok(ExitCode::SUCCESS)
}

fn introduce(ready: &SandboxReady, folder: &str, ephemeral: bool) {
    let SandboxReady { api_url, operator_url, operator_token, psp_id, api_key, rpc, nodes, .. } = ready;
    println!("Payferry's sandbox is ready.\n");
    println!("  API        {api_url}   (reference: {api_url}/docs)");
    println!("  Dashboard  {api_url}/dashboard   (sign in with the API key)");
    println!("  Operator   {operator_url}/ops   (token: {operator_token})");
    println!("  PSP        {psp_id}");
    println!("  API key    {api_key}");
    for (chain, url) in rpc {
        println!("  {:<10} {url}", chain.as_str());
    }
    for node in nodes {
        println!(
            "  Node {:<5} {}   (operator: {}/ops, process {})",
            node.name, node.api_url, node.operator_url, node.pid
        );
    }
    let kept = if ephemeral { "removed at exit" } else { "kept; remove the folder to start over" };
    println!("  Data       {folder}   ({kept})\n");
    println!("Sync a first merchant:\n");
    println!(
        "  curl {api_url}/merchants/sync -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' \\"
    );
    println!(
        "    -d '{{\"merchants\":[{{\"external_id\":\"shop-1\",\"name\":\"Ferry Shop\",\"email\":\"shop@example.com\",\"business_id\":\"B-1\"}}]}}'"
    );
    println!("\nStop with ctrl-c.");
}
