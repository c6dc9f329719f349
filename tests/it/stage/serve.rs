//! Stages with the service as `payferry serve` runs it, in the test's process, on nodes over HTTP.
//!
//! The service uses the real clock: only the chains' time is advanced, in blocks so close that it is not an outage.
//! Each stage has its own nodes, so that an advanced chain affects no other test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use futures::future::join_all;
use payferry::app::App;
use payferry::config::Config;
use payferry::service::{self, chains, secrets};
use payferry_actors::System;
use payferry_devchain::DevWallet;
use payferry_domain::{Amount, Chain, Token};
use payferry_evm::deploy::{contract_address, deploy};
use payferry_evm::wallet::domain_address;
use payferry_harness::database::TestDatabase;
use payferry_harness::deployment::{Accounts, Deployment};
use payferry_harness::node::Node;
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::process::Binary;
use payferry_harness::psp::Psp;
use payferry_harness::settings::Folder;
use tempfile::TempDir;

use super::{Stage, Transfer};

/// Short, for fast finality.
const BLOCK_TIME: Duration = Duration::from_millis(100);
/// Enough that many payments do not queue at one nonce.
const PAYERS: usize = 16;
/// Listeners use free ports.
const ANY_PORT: u16 = 0;

/// `serve` against devchains, each behind its own port.
pub type OnDevchain = Serve<false>;
/// `serve` against anvil nodes, each a process.
pub type OnAnvil = Serve<true>;

/// The service and its chains: anvil nodes or devchains.
pub struct Serve<const IS_ANVIL: bool> {
    service: App,
    psp: Psp,
    psp_id: String,
    chains: BTreeMap<Chain, (Deployment, Payers)>,
    // Dropped after the service.
    _database: TestDatabase,
    _folder: TempDir,
}

impl<const IS_ANVIL: bool> Serve<IS_ANVIL> {
    /// Starts with a change of the usual configuration.
    pub async fn start_with(change: impl FnOnce(&mut toml::Table)) -> Self {
        let accounts = Arc::new(Accounts::known(PAYERS));
        let database = TestDatabase::create().await;
        let folder = tempfile::tempdir().unwrap();
        let mut deployments = join_all(Chain::ALL.map(async |chain| {
            let id = chain.default_id();
            let node = if IS_ANVIL { Node::anvil(id, BLOCK_TIME).await } else { Node::devchain(id, BLOCK_TIME).await };
            Deployment::tokens_only(chain, node, &accounts).await
        }))
        .await;
        let admin = domain_address(accounts.admin.address());
        let contract = contract_address(admin).unwrap();
        for deployment in &mut deployments {
            deployment.contract = Address::from(contract.0);
        }
        let mut files = Folder::new(folder.path(), database.url(), &deployments, &accounts, [ANY_PORT; 2]);
        change(&mut files.settings);
        files.write();
        let config = Config::load(Some(&files.config()), []).unwrap();
        // Like `payferry deploy`.
        let signer = secrets::signers(&config).unwrap().settler;
        let configured = chains::configured(&config, contract).unwrap();
        for deployed in join_all(configured.iter().map(|one| deploy(&one.spec, &one.client, &signer, admin))).await {
            assert_eq!(deployed.unwrap().address, contract);
        }
        join_all(deployments.iter().map(|deployment| deployment.grant(&accounts))).await;
        let make_psp = move || Binary::at(env!("CARGO_BIN_EXE_payferry")).make_psp(&files, "Ferry PSP");
        let (psp_id, api_key) = tokio::task::spawn_blocking(make_psp).await.unwrap();
        let service = service::start(&config).await.unwrap();

        let with_payers = |deployment: Deployment| {
            let payers = Payers::new(&deployment, &accounts);
            (deployment.chain, (deployment, payers))
        };
        Self {
            psp: Psp::new(&service.ready().api_url, &api_key),
            service,
            psp_id,
            chains: deployments.into_iter().map(with_payers).collect(),
            _database: database,
            _folder: folder,
        }
    }
}

impl<const IS_ANVIL: bool> Stage for Serve<IS_ANVIL> {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    fn psp(&self) -> &Psp {
        &self.psp
    }

    fn system(&self) -> &System {
        self.service.system()
    }

    fn node(&self, chain: Chain) -> &Node {
        &self.chains[&chain].0.node
    }

    async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        self.chains[&chain].0.holdings(&self.psp_id, token).await
    }

    fn payer(&self) -> DevWallet {
        Accounts::known(1).payers.remove(0)
    }

    /// Pays like a payer: the payment's record has the address, the token and the amount.
    async fn pay(&self, payment_id: &str, transfer: Transfer) -> String {
        let payment = self.psp.read(payment_id).await;
        let text = |field: &str| payment[field].as_str().unwrap_or_else(|| panic!("no {field} in {payment:#}"));
        let to: Address = text("intermediary_wallet").parse().unwrap();
        let amount: Amount = transfer.amount.unwrap_or_else(|| text("amount")).parse().unwrap();
        let token: Token = transfer.token.unwrap_or_else(|| text("currency").parse().unwrap());
        let chain: Chain = transfer.chain.unwrap_or_else(|| text("chain").parse().unwrap());
        let payer = if transfer.is_sanctioned { Payer::Sanctioned } else { Payer::Clean };
        self.chains[&chain].1.transfer(payer, token, to, amount.units()).await.to_string()
    }

    async fn advance(&self, secs: u64) {
        join_all(self.chains.values().map(|(deployment, _)| deployment.node.advance_time(secs))).await;
    }

    async fn stop(self) {
        self.service.stop().await;
    }
}
