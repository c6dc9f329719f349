//! `payferry deploy`.

use std::process::ExitCode;

use anyhow::Context;
use payferry_domain::{Address, Chain};
use payferry_evm::deploy::{contract_address, deploy};
use payferry_evm::wallet::checksummed;

use crate::config::Config;
use crate::service::{chains, secrets};

/// Options of `deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry deploy --config payferry.toml
  payferry deploy --config payferry.toml --chain base --admin 0x90F8...c9C1

The contract is deployed through the canonical CREATE2 deployer, to the same address on every chain. The address depends
on the admin alone. The settler's account pays for the gas. Nothing can be settled or sent until the admin has granted the
roles: see `payferry contract grant`. Safe to repeat: a chain that has the contract gets no transaction.")]
pub(super) struct Args {
    /// Deploy on this chain only; can be repeated [default: all chains with endpoints].
    #[arg(long, value_name = "CHAIN")]
    chain: Vec<Chain>,
    /// Account that grants roles and limits [default: `contracts.admin`].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<Address>,
    /// Print the contract address and send nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let signer = secrets::signers(&config)?.settler;
    let admin = args.admin.or(config.contracts.admin).context("no admin: set --admin or `contracts.admin`")?;
    let address = contract_address(admin)?;
    let mut failed = false;
    if !args.dry_run {
        let all = chains::configured(&config, address)?;
        let wanted = all.into_iter().filter(|one| args.chain.is_empty() || args.chain.contains(&one.spec.chain));
        for chain in wanted {
            let name = chain.spec.chain;
            match deploy(&chain.spec, &chain.client, &signer, admin).await {
                Ok(deployed) => match deployed.tx_hash {
                    Some(hash) => eprintln!("{name}: deployed in transaction {hash}"),
                    None => eprintln!("{name}: already deployed"),
                },
                Err(error) => {
                    failed = true;
                    eprintln!("{name}: error: {error}");
                }
            }
        }
    }
    println!("[contracts]");
    for (key, address) in [("address", address), ("admin", admin)] {
        println!("{key} = \"{}\"", checksummed(address));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
