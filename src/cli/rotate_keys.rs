//! `payferry rotate-keys`.

use std::process::ExitCode;

use indicatif::ProgressBar;

use super::database::DatabaseArgs;
use crate::config::Config;
use crate::rotation::{Outcome, rotate};

/// Options of `rotate-keys`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry rotate-keys --add-key --config payferry.toml   # 1. add a key to secrets.master_key_file, then restart
  payferry rotate-keys --config payferry.toml             # 2. run beside the service
  payferry rotate-keys --add-key --data-dir payferry-data # add a key for a sandbox

The master key file holds lines of the form `version: 64 hexadecimal digits`. The highest version encrypts; every
version decrypts. When step 2 has ended with exit code 0, older versions can be deleted from the file. Never delete the
`hash` line: API keys are verified with it. The command can be interrupted and repeated at any time.

Exit code 1 if a value cannot be decrypted. Its table and row are printed and it is left unchanged.")]
pub(super) struct Args {
    /// Only add a new key to the master key file. It encrypts from the next start of the service on.
    #[arg(long)]
    add_key: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    if args.add_key {
        let (version, file) = args.database.add_master_key(&config)?;
        println!(
            "{} now has key version {version}. Restart the service, so that it encrypts with it; then run \
             `payferry rotate-keys` to re-encrypt stored values.",
            file.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let sealer = args.database.sealer(&config)?;
    let documents = args.database.documents(&config, sealer.clone())?;
    let database = args.database.open(&config).await?;
    let bar = ProgressBar::new_spinner();
    let outcomes = rotate(&database, &sealer, &documents, |outcome| {
        bar.set_message(format!(
            "{}: {} checked, {} re-sealed",
            outcome.place,
            outcome.checked_len(),
            outcome.resealed
        ));
        bar.tick();
    });
    let outcomes = outcomes.await;
    bar.finish_and_clear();
    database.close().await?;
    let outcomes = outcomes?;
    table(&outcomes);
    for outcome in &outcomes {
        for unopened in &outcome.unopened {
            eprintln!("{} of {} does not open: {}", outcome.place, unopened.row, unopened.why);
        }
        let unnamed = outcome.unopened_count - outcome.unopened.len() as u64;
        if unnamed > 0 {
            eprintln!("{}: {unnamed} more do not open", outcome.place);
        }
    }
    if outcomes.iter().any(|outcome| outcome.unopened_count > 0) {
        return Ok(ExitCode::FAILURE);
    }
    println!("\neverything is sealed with key version {}", sealer.current());
    Ok(ExitCode::SUCCESS)
}

fn table(outcomes: &[Outcome]) {
    let width = outcomes.iter().map(|outcome| outcome.place.len()).max().unwrap_or(0);
    println!("{:<width$}  {:>10}  {:>15}  {:>13}", "what", "re-sealed", "already current", "does not open");
    for Outcome { place, resealed, current, unopened_count, .. } in outcomes {
        println!("{place:<width$}  {resealed:>10}  {current:>15}  {unopened_count:>13}");
    }
}
