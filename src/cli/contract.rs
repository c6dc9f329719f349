//! `payferry contract`.

use std::process::ExitCode;

use alloy::primitives::U256;
use anyhow::{Context, ensure};
use payferry_domain::{Amount, Chain};
use payferry_evm::deploy::{grant, missing_grants};
use payferry_evm::wallet::checksummed;

use crate::config::{Config, SignerSection};
use crate::service::{chains, contract, secrets};

/// Subcommands of `contract`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Grant the first roles, treasury and limits of a new contract, or print them for a multisig.
    Grant(Args),
}

/// Options of `contract grant`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry contract grant --config payferry.toml --limit 2000000                             # prints, for a multisig
  payferry contract grant --config payferry.toml --limit 2000000 --admin-key-file admin.key  # sends

Grants the roles to the accounts of `signer.settler` and `signer.sender`, the fees to `contracts.treasury`, and one limit to
every token. First grants take effect at once. What was granted before stays as it is. Without a key of the admin, each
line is a chain, the contract, and the call data of one transaction from the admin.")]
pub(super) struct Args {
    /// Tokens that can be sent of each kind in 24 hours; one transfer can move half of it.
    #[arg(long, value_name = "AMOUNT")]
    limit: Amount,
    /// Grant on this chain only; can be repeated [default: all chains with endpoints].
    #[arg(long, value_name = "CHAIN")]
    chain: Vec<Chain>,
    /// File with the admin's private key, to send the transactions.
    #[arg(long, value_name = "FILE", conflicts_with = "admin_keystore_file")]
    admin_key_file: Option<std::path::PathBuf>,
    /// Keystore of the admin, to send the transactions.
    #[arg(long, value_name = "FILE", requires = "admin_keystore_password_file")]
    admin_keystore_file: Option<std::path::PathBuf>,
    /// File with the password of that keystore.
    #[arg(long, value_name = "FILE")]
    admin_keystore_password_file: Option<std::path::PathBuf>,
}

pub(super) async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    let Command::Grant(args) = command;
    let keys = secrets::signers(&config)?.keys();
    let limit = U256::from(u64::try_from(args.limit.units()).context("--limit is negative")?);
    ensure!(!limit.is_zero(), "--limit is zero: nothing could be sent");
    ensure!(
        config.contracts.treasury.is_some(),
        "`contracts.treasury` is not set: set the account that receives the fees"
    );
    let section = SignerSection {
        private_key_file: args.admin_key_file,
        keystore_file: args.admin_keystore_file,
        keystore_password_file: args.admin_keystore_password_file,
        ..SignerSection::default()
    };
    let is_sent = section.private_key_file.is_some() || section.keystore_file.is_some();
    let admin = is_sent.then(|| secrets::signer("admin", &section)).transpose()?;
    let all = chains::configured(&config, contract(&config)?)?;
    let mut is_failed = false;
    for chain in all.into_iter().filter(|one| args.chain.is_empty() || args.chain.contains(&one.spec.chain)) {
        let name = chain.spec.chain;
        let done = async {
            let calls = missing_grants(&chain.spec, &chain.client, keys, limit).await?;
            if calls.is_empty() {
                eprintln!("{name}: everything was granted before");
            } else if let Some(admin) = &admin {
                let count = calls.len();
                grant(&chain.spec, &chain.client, admin, calls).await?;
                eprintln!("{name}: granted in {count} transactions");
            } else {
                for call in calls {
                    println!("{name} {} {call}", checksummed(chain.spec.contract));
                }
            }
            anyhow::Ok(())
        };
        if let Err(error) = done.await {
            is_failed = true;
            eprintln!("{name}: error: {error:#}");
        }
    }
    Ok(if is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
