//! `payferry deploy`.

use std::process::ExitCode;

use anyhow::Context;
use payferry_domain::{Address, Chain};
use payferry_evm::deploy::{Roles, contract_address, deploy};
use payferry_evm::wallet::checksummed;

use crate::config::Config;
use crate::service::{chains, secrets};

/// Options of `deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry deploy --config payferry.toml
  payferry deploy --config payferry.toml --chain base --admin 0x90F8...c9C1 --treasury 0xFFcf...7C3E

The contract is deployed through the canonical CREATE2 deployer, to the same address on every chain. The address depends
on the admin, the treasury and the signer's account. The signer's account becomes settler and sender, and pays for the gas.
Safe to repeat: a chain that has the contract gets no transaction.")]
pub(super) struct Args {
    /// Deploy on this chain only; can be repeated [default: all chains with endpoints].
    #[arg(long, value_name = "CHAIN")]
    chain: Vec<Chain>,
    /// Account that may change roles and pause the contract [default: `contracts.admin`].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<Address>,
    /// Account that receives the fees [default: `contracts.treasury`].
    #[arg(long, value_name = "ADDRESS")]
    treasury: Option<Address>,
    /// Print the contract address and send nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let signer = secrets::signer(&config.signer)?;
    let roles = Roles {
        admin: args.admin.or(config.contracts.admin).context("no admin: set --admin or `contracts.admin`")?,
        operator: signer.address(),
        treasury: args
            .treasury
            .or(config.contracts.treasury)
            .context("no treasury: set --treasury or `contracts.treasury`")?,
    };
    let address = contract_address(roles);
    let mut failed = false;
    if !args.dry_run {
        let all = chains::configured(&config, address)?;
        let wanted = all.into_iter().filter(|one| args.chain.is_empty() || args.chain.contains(&one.spec.chain));
        for chain in wanted {
            let name = chain.spec.chain;
            match deploy(&chain.spec, &chain.client, &signer, roles).await {
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
    for (key, address) in [("address", address), ("treasury", roles.treasury), ("admin", roles.admin)] {
        println!("{key} = \"{}\"", checksummed(address));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
