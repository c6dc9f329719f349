//! A sandbox's chains, for a command that inspects them: over JSON-RPC while the sandbox runs, otherwise from its
//! folder.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use payferry_domain::Chain;
use payferry_evm::{ChainClient, ChainSpec};
use serde::{Deserialize, Serialize};
use url::Url;

use super::chain::known_spec;
use super::env::SandboxEnv;
use super::folder::{Folder, read_json, write_json};

/// Block time of chains that are only inspected: long enough that they mine no block.
const BLOCK_TIME: Duration = Duration::from_hours(24);
/// File in the data folder with the address of a running sandbox.
const ADDRESS_FILE: &str = "address.json";

/// Address of a running sandbox. Remains in the folder of a sandbox that was killed.
#[derive(Debug, Serialize, Deserialize)]
struct Address {
    api_url: String,
}

/// Writes the API address of this folder's sandbox to the folder.
pub fn announce(folder: &Folder, api_url: &str) -> anyhow::Result<()> {
    write_json(&folder.path().join(ADDRESS_FILE), &Address { api_url: api_url.to_owned() })
}

/// The chains of a sandbox.
pub struct SharedChains {
    /// Specification and client of each chain.
    pub chains: Vec<(ChainSpec, ChainClient)>,
    /// Opened chains of a stopped sandbox; the folder's lock prevents a start meanwhile.
    closed: Option<(SandboxEnv, Folder)>,
}

impl SharedChains {
    /// Opens the chains of the sandbox with this data folder.
    pub async fn open(data_folder: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = Folder::open_unused(data_folder)? {
            let env = SandboxEnv::open(&folder, BLOCK_TIME).await?;
            let chains = env.setups()?.into_iter().map(|setup| (setup.spec, setup.client)).collect();
            return Ok(Self { chains, closed: Some((env, folder)) });
        }
        let address: Option<Address> = read_json(&data_folder.join(ADDRESS_FILE))?;
        let address =
            address.context("--data-dir: another process locks the folder, and it is not a running sandbox")?;
        let side = |chain: Chain| {
            let url = Url::parse(&format!("{}/sandbox/rpc/{chain}", address.api_url))?;
            anyhow::Ok((known_spec(chain), ChainClient::http(url)?))
        };
        Ok(Self { chains: Chain::ALL.into_iter().map(side).collect::<anyhow::Result<_>>()?, closed: None })
    }

    /// Closes the chains and releases the folder.
    pub async fn close(self) {
        if let Some((env, folder)) = self.closed {
            env.close().await;
            drop(folder);
        }
    }
}
