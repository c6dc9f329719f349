//! `payferry statement`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use payferry_domain::{Chain, PspId, Timestamp, Token};
use payferry_entities::psps;
use sea_orm::EntityTrait;

use super::database::DatabaseArgs;
use crate::config::Config;
use crate::statements::{Format, Period, Statement, Wanted};

/// Options of `statement`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry statement --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --from 2026-11-01 --to 2026-12-01 --output november.csv
  payferry statement --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --from 2026-11-01 --to 2026-12-01 --chain base --currency USDC --format json
  payferry statement --psp psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --from 2026-11-22 --to 2026-11-23 --data-dir payferry-data

Lists the PSP's vault balances at the start of the period, every movement in it, and the balances at its end, by chain
and token. The closing balance of a period is the opening balance of the next. Days are UTC; `--to` is exclusive.")]
pub(super) struct Args {
    /// PSP of the statement.
    #[arg(long, value_name = "ID")]
    psp: PspId,
    /// Start of the period, inclusive: a day or an ISO 8601 time, such as 2026-11-01.
    #[arg(long, value_name = "TIME")]
    from: Timestamp,
    /// End of the period, exclusive; at most 366 days after the start.
    #[arg(long, value_name = "TIME")]
    to: Timestamp,
    /// Only this chain: base, polygon or arbitrum.
    #[arg(long)]
    chain: Option<Chain>,
    /// Only this token: USDC or USDT.
    #[arg(long)]
    currency: Option<Token>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Output file, replaced if it exists [default: standard output].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let Args { psp, from, to, chain, currency, format, output, database } = args;
    let period =
        Period::new(from, to).map_err(|fault| anyhow!("--to {}", fault.to_string().replace("`from`", "--from")))?;
    let tokens = database.tokens(&config);
    let database = database.open(&config).await?;
    if psps::Entity::find_by_id(psp.to_string()).one(database.reader()).await?.is_none() {
        bail!("there is no PSP {psp}");
    }
    let wanted = Wanted { psp_id: psp, period, chain, currency };
    let mut statement = Statement::begin(database.clone(), wanted, &tokens, format).await?;
    let mut out: Box<dyn Write> = match &output {
        Some(file) => {
            let made = File::create(file).with_context(|| format!("--output: {} cannot be written", file.display()))?;
            Box::new(BufWriter::new(made))
        }
        None => Box::new(std::io::stdout().lock()),
    };
    while let Some(chunk) = statement.chunk().await? {
        out.write_all(&chunk)?;
    }
    out.flush()?;
    drop(out);
    database.close().await?;
    Ok(ExitCode::SUCCESS)
}
