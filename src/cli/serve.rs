//! `payferry serve`.

use std::process::ExitCode;

use anyhow::bail;

use super::signals::Signals;
use crate::config::{Config, database_url};
use crate::service::Service;

/// Options of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry serve --config payferry.toml
  payferry serve --config payferry.toml --database-url postgres://payferry:secret@localhost/payferry
  PAYFERRY_SERVER__LISTEN=0.0.0.0:8080 payferry serve --config payferry.toml --json

Before the first start: `payferry deploy` and `payferry check`. A signal (ctrl-c, SIGTERM) stops it in order within 10 s; a
second one at once. Nothing that was acknowledged is lost either way: the next start goes on where this one ended.")]
pub(super) struct Args {
    /// Another database than the configuration's: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = "PAYFERRY_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    if let Some(given) = &args.database_url {
        match database_url(given) {
            Some(url) => config.database.url = url,
            None => bail!(super::database::URL_EXPECTED),
        }
    }
    // Before the start: whoever waits for the ready line may stop it the moment it appears.
    let mut signals = Signals::new()?;
    let service = tokio::select! {
        service = Service::start(&config) => service?,
        () = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    if args.json {
        println!("{}", serde_json::to_string(service.ready())?);
    } else {
        println!("Payferry is ready.\n");
        println!("  API        {}   (reference: {0}/docs)", service.api_url());
        println!("  Operator   {}", service.operator_url());
        for (chain, section) in config.chains.iter().filter(|(_, section)| section.is_on()) {
            let hosts: Vec<String> = section.endpoints.iter().map(ToString::to_string).collect();
            println!("  {:<10} chain id {}, {}", chain.as_str(), section.chain_id, hosts.join(", "));
        }
    }
    signals.next().await;
    if !args.json {
        println!("\nStopping.");
    }
    signals.end_at_next();
    service.stop().await;
    Ok(ExitCode::SUCCESS)
}
