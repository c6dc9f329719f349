//! The command line: one file a subcommand.

mod audit;
#[cfg(feature = "tools")]
mod bench;
mod check;
mod database;
#[cfg(feature = "tools")]
mod demo;
mod deploy;
mod key;
#[cfg(feature = "tools")]
mod load;
mod migrate;
mod pause;
mod psp;
mod reconcile;
mod rotate_keys;
#[cfg(feature = "sandbox")]
mod sandbox;
mod serve;
mod signals;
mod statement;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Config;

/// A failed command.
const FAILED: u8 = 1;
/// Files, connections mostly, that the process asks to have open at once; as many as it is allowed, if that is less.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Stablecoin payments for payment service providers.
#[derive(Debug, Parser)]
#[command(name = "payferry", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// Configuration file (TOML). Keys it does not set keep their defaults.
    #[arg(long, global = true, env = "PAYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything in one process: the service, three simulated chains, a PSP with a key.
    #[cfg(feature = "sandbox")]
    Sandbox(sandbox::Args),
    /// Run the service on the chains of the configuration.
    Serve(serve::Args),
    /// Look at everything that `serve` needs and print how it is, as a table.
    Check(check::Args),
    /// Deploy the settlement contract on the chains of the configuration.
    Deploy(deploy::Args),
    /// Play the whole story against a fresh sandbox, with a closing table.
    #[cfg(feature = "tools")]
    Demo(demo::Args),
    /// Load a sandbox with payments and see what becomes of each, with percentiles of every stage.
    #[cfg(feature = "tools")]
    Load(load::Args),
    /// Measure this project's figures on this machine and print them beside their goals, as a table.
    #[cfg(feature = "tools")]
    Bench(bench::Args),
    /// Bring the database's tables up to date.
    Migrate(migrate::Args),
    /// Make, list and change payment service providers.
    Psp(psp::Args),
    /// Hold back chains, PSPs, settlement or sending, and let them go on.
    Pause(pause::Args),
    /// Make, list and revoke API keys.
    Key(key::Args),
    /// Show who did what to which customer or payment.
    Audit(audit::Args),
    /// Write what a PSP's vaults held at both ends of a period, and every movement in between.
    Statement(statement::Args),
    /// Hold what is on the chains against the ledger, and find transfers that were missed.
    Reconcile(reconcile::Args),
    /// Change the key that encrypts what is kept: add one, and seal everything anew with it.
    RotateKeys(rotate_keys::Args),
}

impl Command {
    /// What is logged unless something else is asked for.
    fn usual_log(&self) -> &'static str {
        match self {
            // Its stories go wrong on purpose, and its table says how they ended.
            #[cfg(feature = "tools")]
            Self::Demo(_) => "off",
            Self::Serve(_) => "warn,payferry=info,payferry_actors=info",
            _ => "warn",
        }
    }
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let config = Config::load(cli.config.as_deref(), env)?;
    crate::telemetry::init(&config.log, cli.command.usual_log());
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // Of the two that rustls knows, the one that builds without cmake; a second install changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Where that cannot be, the listeners say so when they run out.
    let _ = rlimit::increase_nofile_limit(OPEN_FILES_WANTED);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match cli.command {
            #[cfg(feature = "sandbox")]
            Command::Sandbox(args) => sandbox::run(args, config).await,
            Command::Serve(args) => serve::run(args, config).await,
            Command::Check(args) => check::run(args, config).await,
            Command::Deploy(args) => deploy::run(args, config).await,
            #[cfg(feature = "tools")]
            Command::Demo(args) => demo::run(args, config).await,
            #[cfg(feature = "tools")]
            Command::Load(args) => load::run(args, cli.config).await,
            #[cfg(feature = "tools")]
            Command::Bench(args) => bench::run(args).await,
            Command::Migrate(args) => migrate::run(args, config).await,
            Command::Psp(args) => psp::run(args, config).await,
            Command::Pause(args) => pause::run(args, config).await,
            Command::Key(args) => key::run(args, config).await,
            Command::Audit(args) => audit::run(args, config).await,
            Command::Statement(args) => statement::run(args, config).await,
            Command::Reconcile(args) => reconcile::run(args, config).await,
            Command::RotateKeys(args) => rotate_keys::run(args, config).await,
        }
    });
    // What still runs (idle connections, say) must not keep the process.
    runtime.shutdown_background();
    done
}
