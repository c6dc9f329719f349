//! The simulated environment of one sandbox: chains, clock and inboxes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use payferry_actors::ChainSetup;
use payferry_actors::chain::{NoCheckpoint, wake_on_change};
use payferry_actors::compliance::ListScreener;
use payferry_domain::Chain;
use payferry_evm::ChainClient;
use payferry_evm::wallet::{OperatorSigner, domain_address};

use super::accounts::Accounts;
use super::chain::SandboxChain;
use super::folder::Folder;
use super::inbox::Inboxes;
use super::time::SandboxClock;

/// Name and version of the sandbox's sanctions list in verdicts.
const SANCTIONS_LIST: (&str, &str) = ("sandbox", "1");

/// The simulated environment.
#[derive(Debug)]
pub struct SandboxEnv {
    chains: BTreeMap<Chain, Arc<SandboxChain>>,
    clock: SandboxClock,
    inboxes: Inboxes,
    accounts: Arc<Accounts>,
}

impl SandboxEnv {
    /// Opens the environment stored in `folder`, or creates it.
    pub async fn open(folder: &Folder, block_time: Duration) -> anyhow::Result<Self> {
        let accounts = Arc::new(Accounts::known());
        let chains = try_join_all(Chain::ALL.map(|chain| {
            let (file, accounts) = (folder.chain(chain), accounts.clone());
            async move {
                let opened = SandboxChain::open(chain, Some(file), block_time, accounts).await?;
                anyhow::Ok((chain, Arc::new(opened)))
            }
        }));
        let chains: BTreeMap<_, _> = chains.await?.into_iter().collect();
        let clock = SandboxClock::open(folder.clock(), chains.values()).await?;
        Ok(Self { chains, clock, inboxes: Inboxes::default(), accounts })
    }

    /// Returns a chain.
    pub fn chain(&self, chain: Chain) -> &Arc<SandboxChain> {
        // Every chain is opened.
        &self.chains[&chain]
    }

    /// All chains.
    pub fn chains(&self) -> impl Iterator<Item = (Chain, &Arc<SandboxChain>)> {
        self.chains.iter().map(|(chain, running)| (*chain, running))
    }

    /// The clock.
    pub fn clock(&self) -> &SandboxClock {
        &self.clock
    }

    /// The webhook inboxes.
    pub fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// Advances the service and the chains. Returns the new offset in seconds.
    pub async fn advance(&self, secs: u64) -> anyhow::Result<u64> {
        self.clock.advance(secs, self.chains.values()).await
    }

    /// Chain setups for the service, over the chains' JSON-RPC including its injected faults.
    pub fn setups(&self) -> anyhow::Result<Vec<ChainSetup>> {
        let key = self.accounts.operator.signer().to_bytes();
        let setup = |chain: &Arc<SandboxChain>| {
            Ok(ChainSetup {
                spec: chain.spec().clone(),
                client: ChainClient::new(chain.devchain().transport()),
                signer: OperatorSigner::from_bytes(&key.0)?,
                checkpoint: Arc::new(NoCheckpoint),
                wake_ups: Some(wake_on_change(chain.devchain().heads())),
            })
        };
        self.chains.values().map(setup).collect()
    }

    /// The sandbox's KYT provider: blocks the sanctioned payer and allows all others.
    pub fn screener(&self) -> ListScreener {
        let (name, version) = SANCTIONS_LIST;
        let listed = domain_address(self.accounts.sanctioned.address());
        ListScreener::new(name, version, [listed], self.clock.clock().clone())
    }

    /// Completes pending work of the chains and closes their files.
    pub async fn close(&self) {
        join_all(self.chains.values().map(|chain| chain.devchain().close())).await;
    }
}
