//! `payferry check`.

use std::process::ExitCode;

use payferry_evm::inspect::Grade;
use serde_json::json;

use crate::config::{Config, DatabaseSection, database_url};
use crate::service::check::{CheckLine, check, is_good};

/// Options of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry check --config payferry.toml
  payferry check --config payferry.toml --json | jq '.[] | select(.grade != \"ok\")'

Changes nothing. Exit code 1 if the service or one of its chains could not run with this configuration.")]
pub(super) struct Args {
    /// Override the configured database: a path or postgres://user:password@host/name.
    #[arg(long, value_name = "URL", env = "PAYFERRY_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    if let Some(given) = &args.database_url {
        let url = database_url(given).ok_or_else(|| anyhow::anyhow!(super::database::URL_EXPECTED))?;
        config.database = DatabaseSection::at(url);
    }
    let lines = check(&config).await;
    if args.json {
        let rows = lines.iter().map(|line| {
            let CheckLine { place, finding } = line;
            json!({"place": place, "what": finding.what, "grade": word(finding.grade), "detail": finding.detail})
        });
        println!("{}", rows.collect::<serde_json::Value>());
    } else {
        table(&lines);
    }
    Ok(if is_good(&lines) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(lines: &[CheckLine]) {
    let width = |of: fn(&CheckLine) -> &str| lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
    let (places, whats) = (width(|line| &line.place), width(|line| &line.finding.what));
    for CheckLine { place, finding } in lines {
        println!("{:<5}  {place:<places$}  {:<whats$}  {}", word(finding.grade), finding.what, finding.detail);
    }
    let count = |grade| lines.iter().filter(|line| line.finding.grade == grade).count();
    println!(
        "\n{} checked: {} ok, {} to review, {} wrong",
        lines.len(),
        count(Grade::Good),
        count(Grade::Doubtful),
        count(Grade::Bad)
    );
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "ok",
        Grade::Doubtful => "look",
        Grade::Bad => "wrong",
    }
}
