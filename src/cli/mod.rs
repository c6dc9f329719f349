//! The command line: one file per subcommand.

mod audit;
mod backup;
mod check;
mod contract;
mod database;
mod deploy;
mod health;
mod key;
#[cfg(feature = "tools")]
mod load;
mod manual;
mod migrate;
mod operator;
mod pause;
mod psp;
mod reconcile;
mod replay;
mod rotate_keys;
#[cfg(feature = "sandbox")]
mod sandbox;
mod serve;
mod signals;
mod statement;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use payferry_domain::Timestamp;
use payferry_runtime::request::{self, RequestSource};

#[cfg(feature = "tools")]
use self::signals::Signals;
use crate::config::Config;

/// Exit code of a failed command.
const FAILED: u8 = 1;
/// Requested limit of open files (mostly connections). A lower hard limit of the system applies instead.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Characters of a user's name in the audit log.
const USER_CHARS_MAX: usize = 64;

/// Cargo features that a build may have.
const FEATURES: [(&str, bool); 3] =
    [("sandbox", cfg!(feature = "sandbox")), ("tools", cfg!(feature = "tools")), ("faults", cfg!(feature = "faults"))];

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
    /// Run everything in one process: the service, three simulated chains and a PSP with an API key.
    #[cfg(feature = "sandbox")]
    Sandbox(sandbox::Args),
    /// Run the service on the chains of the configuration.
    Serve(serve::Args),
    /// Check everything that `serve` needs and print the results as a table.
    Check(check::Args),
    /// Ask the running service if it is healthy: for health checks of containers and supervisors.
    Health(health::Args),
    /// Deploy the settlement contract on the chains of the configuration.
    Deploy(deploy::Args),
    /// Administer the settlement contract.
    #[command(subcommand)]
    Contract(contract::Command),
    /// Play the stories of a payment against a new sandbox and print the outcomes.
    #[cfg(feature = "tools")]
    Demo(payferry_demo::command::Args),
    /// Put load on a sandbox, check every payment, and print percentiles of every stage.
    #[cfg(feature = "tools")]
    Load(load::Args),
    /// Measure this project's figures on this machine, and print them beside their goals.
    #[cfg(feature = "tools")]
    Bench(payferry_bench::command::Args),
    /// Apply pending database migrations.
    Migrate(migrate::Args),
    /// Create, list and change payment service providers.
    #[command(subcommand)]
    Psp(psp::Command),
    /// Pause and resume chains, PSPs, settlement or outbound transfers.
    #[command(subcommand)]
    Pause(pause::Command),
    /// Create, list and revoke API keys.
    #[command(subcommand)]
    Key(key::Command),
    /// Create, list and revoke operators.
    #[command(subcommand)]
    Operator(operator::Command),
    /// Show the audit log: actions on customers and payments, and their actors.
    Audit(audit::Args),
    /// Export a PSP's opening balances, movements and closing balances for a period.
    Statement(statement::Args),
    /// Compare on-chain balances with the ledger, and find missed transfers.
    Reconcile(reconcile::Args),
    /// Back up an SQLite database and its documents as one verified file, while the service runs.
    Backup(backup::BackupArgs),
    /// Restore a backup, or verify it.
    Restore(backup::RestoreArgs),
    /// Run stored histories through the rules of this version, and name the payments that would come out differently.
    Replay(replay::Args),
    /// Show the operator's console in a terminal: attention, actors, messages and the supervision log.
    Top(top::Args),
    /// Rotate the master key: add a key version, and re-encrypt stored values with it.
    RotateKeys(rotate_keys::Args),
    /// Print the completion script of a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands into a folder.
    Man(manual::ManArgs),
}

impl Command {
    /// Default log filter of the command. A target covers every target that begins with it, so `payferry` stands for all
    /// crates of this workspace.
    fn usual_log(&self) -> &'static str {
        match self {
            Self::Serve(_) => "warn,payferry=info",
            _ => "warn",
        }
    }
}

/// Parses the command line and runs the command. `--version` names the commit.
pub fn main(commit: &str) -> ExitCode {
    let features: Vec<&str> = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let version = format!("{}\ncommit: {commit}\nfeatures: {features}", env!("CARGO_PKG_VERSION"));
    let mut command = Cli::command().long_version(&*version.leak());
    let cli = Cli::from_arg_matches_mut(&mut command.get_matches_mut()).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // These need no configuration.
    match &cli.command {
        Command::Completions(args) => return manual::completions(args),
        Command::Man(args) => return manual::man(args),
        _ => {}
    }
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let config = Config::load(cli.config.as_deref(), env)?;
    crate::telemetry::init(&config.log, cli.command.usual_log());
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // Of the two providers of rustls, ring builds without cmake. A second install has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let is_service = match &cli.command {
        #[cfg(feature = "sandbox")]
        Command::Sandbox(_) => true,
        Command::Serve(_) => true,
        _ => false,
    };
    let _traces = if is_service { crate::telemetry::export_traces(&config.traces, &config.node.name)? } else { None };
    // If the limit cannot be raised, the listeners report an error when they run out of files.
    let _ = rlimit::increase_nofile_limit(OPEN_FILES_WANTED);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(request::answering(source(), async {
        match cli.command {
            #[cfg(feature = "sandbox")]
            Command::Sandbox(args) => Box::pin(sandbox::run(args, config, cli.config)).await,
            Command::Serve(args) => serve::run(args, config).await,
            Command::Check(args) => check::run(args, config).await,
            Command::Health(args) => health::run(args, config).await,
            Command::Deploy(args) => deploy::run(args, config).await,
            Command::Contract(command) => contract::run(command, config).await,
            #[cfg(feature = "tools")]
            Command::Demo(args) => payferry_demo::command::run(args, cli.config).await,
            #[cfg(feature = "tools")]
            Command::Load(args) => load::run(args, cli.config).await,
            #[cfg(feature = "tools")]
            Command::Bench(args) => {
                let is_bound = args.is_bound_server();
                let mut signals = if is_bound { Signals::and_end_of_stdin()? } else { Signals::new()? };
                let interrupted = async { _ = signals.next().await };
                payferry_bench::command::run(args, Box::pin(interrupted)).await
            }
            Command::Migrate(args) => migrate::run(args, config).await,
            Command::Psp(command) => psp::run(command, config).await,
            Command::Pause(command) => pause::run(command, config).await,
            Command::Key(command) => key::run(command, config).await,
            Command::Operator(command) => operator::run(command, config).await,
            Command::Audit(args) => audit::run(args, config).await,
            Command::Statement(args) => statement::run(args, config).await,
            Command::Reconcile(args) => reconcile::run(args, config).await,
            Command::Backup(args) => backup::back_up(args, config).await.map(|()| ExitCode::SUCCESS),
            Command::Restore(args) => backup::restore(args, config).await.map(|()| ExitCode::SUCCESS),
            Command::Replay(args) => replay::run(args, config).await,
            Command::Top(args) => top::run(args).await,
            Command::RotateKeys(args) => rotate_keys::run(args, config).await,
            Command::Completions(_) | Command::Man(_) => unreachable!("they have run without a configuration"),
        }
    }));
    // Open tasks (for example idle connections) must not keep the process running.
    runtime.shutdown_background();
    done
}

/// Source of the audit entries of a command: `cli` and the user of the machine, as the environment names it.
fn source() -> RequestSource {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    let user: String = user.chars().filter(is_plain).take(USER_CHARS_MAX).collect();
    let operator = if user.is_empty() { "cli".to_owned() } else { format!("cli:{user}") };
    RequestSource { operator: Some(operator), ..RequestSource::default() }
}

/// Reads the name of one of the values; the help explains each.
fn one_of<T: Copy + Send + Sync>(
    values: &'static [(T, &'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    let value = |given: String| values.iter().find(|(_, name, _)| *name == given).map(|(value, ..)| *value);
    PossibleValuesParser::new(names).try_map(move |given| value(given).ok_or("not one of the values"))
}

fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}
