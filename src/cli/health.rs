//! `payferry health`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Client, StatusCode};
use serde_json::Value;
use url::Url;

use crate::app::reachable;
use crate::config::Config;

/// Time limit of the request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `health`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry health --config payferry.toml
  payferry health --ready
  payferry health --ready --url https://operator.internal

Asks `operator_listen` of `[server]` on this machine. Exit code 1, with the reason, if the answer is not 200.")]
pub(super) struct Args {
    /// Ask if the node takes new requests (/readyz), and not only if the process runs (/healthz).
    #[arg(long)]
    ready: bool,
    /// Ask this operator listener instead of the configured one.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let listener = config.server.operator_listen;
    let base = match args.url {
        Some(url) => url.to_string(),
        None if listener.port() == 0 => bail!("`server.operator_listen` has port 0: name the listener with --url"),
        None => format!("http://{}", reachable(listener)),
    };
    let url = format!("{}{}", base.trim_end_matches('/'), if args.ready { "/readyz" } else { "/healthz" });
    // The proxy that the environment may name is for other machines.
    let client = Client::builder().timeout(ANSWER_TIMEOUT).no_proxy().build()?;
    let answer = client.get(&url).send().await.map_err(reqwest::Error::without_url);
    let answer = answer.with_context(|| format!("{url} does not answer"))?;
    match (answer.status(), args.ready) {
        (StatusCode::OK, false) => println!("running"),
        (StatusCode::OK, true) => println!("ready"),
        (status, _) => {
            let reasons = answer.json().await.map(|body| failing(&body)).unwrap_or_default();
            bail!("{url} answers {status}{reasons}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The parts of an answer of `/readyz` that are not ok, as the end of a message.
fn failing(readiness: &Value) -> String {
    let parts = readiness.as_object().into_iter().flatten().filter(|(_, part)| part["ok"] == false);
    parts.map(|(name, part)| format!("; {name}: {part}")).collect::<Vec<_>>().concat()
}
