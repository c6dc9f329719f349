//! `payferry serve`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::SignalKind;

use super::signals::Signals;
use crate::config::{Config, DatabaseSection, database_url};
use crate::service;

/// Options of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry serve --config payferry.toml
  payferry serve --config payferry.toml --database-url postgres://payferry:secret@localhost/payferry
  PAYFERRY_SERVER__LISTEN=0.0.0.0:8080 payferry serve --config payferry.toml --json

Before the first start, run `payferry deploy` and `payferry check`.

SIGTERM drains the service and then stops it: for `drain_secs` of `[server]` (10 s), `/readyz` answers 503 and requests are
answered as before. SIGINT (ctrl-c), or any signal during the drain, stops the service without waiting. The stop answers
running requests and takes at most 10 s; a signal during the stop ends the process at once. No acknowledged data is lost in
any case: the next start continues.")]
pub(super) struct Args {
    /// Override the configured database: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = "PAYFERRY_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    if let Some(given) = &args.database_url {
        match database_url(given) {
            Some(url) => config.database = DatabaseSection::at(url),
            None => bail!(super::database::URL_EXPECTED),
        }
    }
    // Before the start: a caller that waits for the ready line may send a signal as soon as it appears.
    let mut signals = Signals::new()?;
    let service = tokio::select! {
        service = service::start(&config) => service?,
        _ = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    if args.json {
        println!("{}", serde_json::to_string(service.ready())?);
    } else {
        println!("Payferry is ready.\n");
        println!("  API        {}   (reference: {0}/docs)", service.ready().api_url);
        println!("  Operator   {}", service.ready().operator_url);
        for (chain, section) in config.chains.iter().filter(|(_, section)| section.is_on()) {
            let hosts: Vec<String> = section.endpoints.iter().map(ToString::to_string).collect();
            println!("  {:<10} chain id {}, {}", chain.as_str(), section.chain_id, hosts.join(", "));
        }
    }
    let until_stop = async {
        // A supervisor sends SIGTERM. A person, who waits for the end, sends SIGINT.
        if signals.next().await != SignalKind::terminate() || config.server.drain_secs == 0 {
            return;
        }
        if !args.json {
            println!("\nDraining for {} s.", config.server.drain_secs);
        }
        tokio::select! {
            () = service.drain(Duration::from_secs(config.server.drain_secs)) => {}
            _ = signals.next() => {}
        }
    };
    tokio::select! {
        () = until_stop => {}
        why = service.writer_lost() => bail!("{why}; this service has stopped writing, and ends"),
    }
    if !args.json {
        println!("\nStopping.");
    }
    signals.end_at_next();
    service.stop().await;
    Ok(ExitCode::SUCCESS)
}
