//! A sandbox's chains, for a command that looks at them beside it: over its JSON-RPC while it runs, else straight from its folder.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use payferry_actors::chain::{ChainClient, ChainSpec};
use payferry_domain::Chain;
use serde::{Deserialize, Serialize};
use url::Url;

use super::chain::known_spec;
use super::folder::{Folder, read_json, write_json};
use super::world::World;

/// The time between blocks of chains that are only looked at: they make none.
const BLOCK_TIME: Duration = Duration::from_hours(24);
/// Where a running sandbox is, in its folder.
const ADDRESS_FILE: &str = "address.json";

/// Where a running sandbox is. Stays in the folder of one that was killed.
#[derive(Debug, Serialize, Deserialize)]
struct Address {
    api_url: String,
}

/// Writes down where the sandbox of this folder answers.
pub fn announce(folder: &Folder, api_url: &str) -> anyhow::Result<()> {
    write_json(&folder.path().join(ADDRESS_FILE), &Address { api_url: api_url.to_owned() })
}

/// The chains of a sandbox.
pub struct ChainsBeside {
    /// What is known of each, and a way to it.
    pub chains: Vec<(ChainSpec, ChainClient)>,
    /// What it is read from while no sandbox runs; nobody can start one meanwhile.
    closed: Option<(World, Folder)>,
}

impl ChainsBeside {
    /// Of the sandbox with this data folder.
    pub async fn open(data_folder: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = Folder::open_unused(data_folder)? {
            let world = World::open(&folder, BLOCK_TIME).await?;
            let chains = world.setups()?.into_iter().map(|setup| (setup.spec, setup.client)).collect();
            return Ok(Self { chains, closed: Some((world, folder)) });
        }
        let address: Option<Address> = read_json(&data_folder.join(ADDRESS_FILE))?;
        let address = address.context("--data-dir: another process has the folder, and it is no running sandbox")?;
        let side = |chain: Chain| {
            let url = Url::parse(&format!("{}/sandbox/rpc/{chain}", address.api_url))?;
            anyhow::Ok((known_spec(chain), ChainClient::http(url)?))
        };
        Ok(Self { chains: Chain::ALL.into_iter().map(side).collect::<anyhow::Result<_>>()?, closed: None })
    }

    /// Lets go of the chains.
    pub async fn close(self) {
        if let Some((world, folder)) = self.closed {
            world.close().await;
            drop(folder);
        }
    }
}
