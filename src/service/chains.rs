//! Configured chains, ready to run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use payferry_actors::ChainSetup;
use payferry_actors::chain::Checkpoint;
use payferry_domain::{Address, Chain};
use payferry_evm::{ChainClient, ChainSpec};

use super::secrets::Signers;
use crate::config::{ChainSection, Config, Endpoint};

/// Chain with configured endpoints.
#[derive(Debug, Clone)]
pub struct Configured {
    /// Specification of the chain.
    pub spec: ChainSpec,
    /// Client over all of its endpoints.
    pub client: ChainClient,
    /// Client for each endpoint alone.
    pub endpoints: Vec<(Endpoint, ChainClient)>,
}

/// Returns the chains with endpoints, or an error if there are none. `contract` is the address of the Payferry
/// contract, which may not be deployed yet.
pub fn configured(config: &Config, contract: Address) -> anyhow::Result<Vec<Configured>> {
    let on = config.chains.iter().filter(|(_, chain)| chain.is_on());
    let chains = on.map(|(name, chain)| one(*name, chain, contract, config)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!chains.is_empty(), "no chain has endpoints: set `chains.base.endpoints`, or those of another chain");
    Ok(chains)
}

fn one(name: Chain, chain: &ChainSection, contract: Address, config: &Config) -> anyhow::Result<Configured> {
    let spec = chain.spec(name, contract, &config.contracts);
    ensure!(!spec.tokens.is_empty(), "chain {name} has no token: set `chains.{name}.usdc` or `chains.{name}.usdt`");
    let http = |endpoints: &[Endpoint]| {
        let urls = endpoints.iter().map(|endpoint| endpoint.expose().clone());
        ChainClient::http_all(urls, Duration::from_millis(chain.request_timeout_ms.get()), chain.json_rpc_batches)
    };
    let each = chain.endpoints.iter().map(|endpoint| Ok((endpoint.clone(), http(std::slice::from_ref(endpoint))?)));
    let endpoints = each.collect::<anyhow::Result<_>>()?;
    Ok(Configured { spec, client: http(&chain.endpoints)?, endpoints })
}

impl Configured {
    /// Converts into the setup of the chain's actors.
    pub fn setup(self, signers: &Signers, checkpoint: Arc<dyn Checkpoint>) -> ChainSetup {
        let Signers { settler, sender } = signers.clone();
        ChainSetup { spec: self.spec, client: self.client, settler, sender, wake_ups: None, checkpoint }
    }
}
