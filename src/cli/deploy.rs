//! `payferry deploy`.

use std::process::ExitCode;

use anyhow::Context;
use payferry_actors::chain::deploy::{Roles, contract_address, deploy};
use payferry_actors::wallet::checksummed;
use payferry_domain::{Address, Chain};

use crate::config::Config;
use crate::service::{chains, secrets};

/// Options of `deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry deploy --config payferry.toml
  payferry deploy --config payferry.toml --chain base --admin 0x90F8...c9C1 --treasury 0xFFcf...7C3E

The contract goes through the canonical CREATE2 deployer to the same address on every chain: it follows from the admin,
the treasury and the signer's account, which becomes settler and sender and pays for the gas. May be repeated: where
the contract is there, nothing is sent.")]
pub(super) struct Args {
    /// On this chain only; may be given several times [default: all that have endpoints].
    #[arg(long, value_name = "CHAIN")]
    chain: Vec<Chain>,
    /// May change roles and pause [default: `contracts.admin`].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<Address>,
    /// Takes the fees [default: `contracts.treasury`].
    #[arg(long, value_name = "ADDRESS")]
    treasury: Option<Address>,
    /// Only say where the contract would be; nothing is sent.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let signer = secrets::signer(&config.signer)?;
    let roles = Roles {
        admin: args.admin.or(config.contracts.admin).context("no admin: --admin or `contracts.admin`")?,
        operator: signer.address(),
        treasury: args
            .treasury
            .or(config.contracts.treasury)
            .context("no treasury: --treasury or `contracts.treasury`")?,
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
                    None => eprintln!("{name}: it is there already"),
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
