//! `payferry backup` and `payferry restore`.

use std::path::PathBuf;

use payferry_runtime::clock::Clock;

use super::database::DatabaseArgs;
use crate::backup::{self, Manifest, Target};
use crate::config::Config;

/// Options of `backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry backup --config payferry.toml --out payferry-2026-11-29.tar.gz
  payferry backup --config payferry.toml --out payferry.age --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
  payferry backup --data-dir payferry-data --out sandbox.tar.gz

For a database on SQLite, while the service runs. The file has a consistent copy of the database and the documents folder, and is
verified. Documents in a bucket are not included. Back up the master key and the keys of the signers apart from this file.

Back up PostgreSQL with its own tools: see docs/src/operate/backup.md.")]
pub(super) struct BackupArgs {
    /// File to create.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Encrypt for this age recipient; can be repeated.
    #[arg(long = "recipient", value_name = "AGE1...")]
    recipients: Vec<String>,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Options of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry restore --config payferry.toml --file payferry-2026-11-29.tar.gz
  payferry restore --config payferry.toml --file payferry.age --identity backup-identity.txt
  payferry restore --file payferry-2026-11-29.tar.gz --verify-only

The database file of the configuration must not exist, and its documents folder must be empty. Nothing is written there before
everything is verified. If the service ran after the backup was made, follow docs/src/operate/backup.md before its first start.")]
pub(super) struct RestoreArgs {
    /// Backup.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// File with the age identity that opens the backup.
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Verify the backup and restore nothing.
    #[arg(long)]
    verify_only: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn back_up(args: BackupArgs, config: Config) -> anyhow::Result<()> {
    args.database.sqlite_file(&config)?;
    let documents = args.database.documents_folder(&config);
    let database = args.database.open(&config).await?;
    let now = Clock::default().real_now();
    let made = backup::back_up(&database, documents.as_deref(), &args.out, &args.recipients, now).await;
    database.close().await?;
    print("backed up", &made?);
    if documents.is_none() {
        println!("the documents are in a bucket, which is not included");
    }
    println!("keep the master key and the keys of the signers apart from {}", args.out.display());
    Ok(())
}

pub(super) async fn restore(args: RestoreArgs, config: Config) -> anyhow::Result<()> {
    let RestoreArgs { file, identity, verify_only, database } = args;
    if verify_only {
        print("verified", &backup::restore(&file, identity.as_deref(), None).await?);
        return Ok(());
    }
    let documents = database.documents_folder(&config).unwrap_or_else(|| config.documents.folder.clone());
    let target = Target { database: database.sqlite_file(&config)?, documents };
    let restored = backup::restore(&file, identity.as_deref(), Some(target)).await?;
    print("restored", &restored);
    println!(
        "if the service ran after {}, follow docs/src/operate/backup.md before its first start",
        restored.created_at
    );
    Ok(())
}

fn print(done: &str, manifest: &Manifest) {
    let (bytes, documents) = (manifest.database_bytes(), manifest.documents());
    let Manifest { version, created_at, .. } = manifest;
    println!("{done}: database of {bytes} bytes and {documents} documents, of {created_at}, by payferry {version}");
}
