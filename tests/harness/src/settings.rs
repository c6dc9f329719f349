//! The configuration of the real binary, and the folder with its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use alloy::primitives::Address;
use payferry_domain::{Chain, Token};
use serde::Serialize;

use crate::deployment::{Accounts, Deployment};

/// `payferry.toml`, as far as tests set it. Other keys keep their defaults or are set in `more`.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Listeners and environment.
    pub server: Server,
    /// The database.
    pub database: Database,
    /// Paths of the secrets in the folder.
    pub secrets: Secrets,
    /// The operator's account.
    pub signer: Signer,
    /// The contracts, the same on every chain.
    pub contracts: Contracts,
    /// KYT configuration.
    pub kyt: Kyt,
    /// The enabled chains.
    pub chains: BTreeMap<Chain, ChainSettings>,
    /// Storage of documents.
    pub documents: Documents,
    /// Other sections.
    #[serde(flatten)]
    pub more: toml::Table,
}

/// `[server]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Server {
    pub listen: String,
    pub operator_listen: String,
    pub environment: &'static str,
}

/// `[database]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Database {
    pub url: String,
}

/// `[secrets]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Secrets {
    pub master_key_file: PathBuf,
    pub operator_token_file: PathBuf,
}

/// `[signer]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Signer {
    pub private_key_file: PathBuf,
}

/// `[contracts]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Contracts {
    pub address: Address,
    pub treasury: Address,
}

/// `[kyt]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Kyt {
    pub sanctions_file: PathBuf,
}

/// `[documents]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct Documents {
    pub folder: PathBuf,
}

/// `[chains.<name>]`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the keys of the configuration")]
pub struct ChainSettings {
    pub endpoints: Vec<String>,
    pub chain_id: u64,
    pub usdc: Address,
    pub usdt: Address,
    pub lookalikes: Vec<Address>,
    pub start_block: u64,
    pub finality: Vec<Tier>,
    pub poll_interval_ms: u64,
    /// Other keys.
    #[serde(flatten)]
    pub more: toml::Table,
}

/// One finality tier.
#[derive(Clone, Debug, Serialize)]
pub struct Tier {
    /// Upper limit of the amounts; absent in the last tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
    /// Blocks, `safe` or `finalized`.
    pub wait: toml::Value,
}

impl ChainSettings {
    /// Test defaults: short polling interval, start at the first block, final after two blocks.
    pub fn of(deployment: &Deployment) -> Self {
        let more = toml::toml! {
            l1_gas = "none"
            priority_fee_min_gwei = "0"
        };
        Self {
            endpoints: vec![deployment.node.url().to_owned()],
            chain_id: deployment.node.chain_id(),
            usdc: deployment.token(Token::Usdc),
            usdt: deployment.token(Token::Usdt),
            lookalikes: Vec::new(),
            start_block: 0,
            finality: vec![Tier { below: None, wait: toml::Value::Integer(2) }],
            poll_interval_ms: 100,
            more,
        }
    }
}

/// A folder with a configuration and its files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Written to the file by [`Folder::write`].
    pub settings: Settings,
    /// Bearer token of the operator listener.
    pub operator_token: String,
}

impl Folder {
    /// Creates the secrets and a configuration for these chains on these ports (API, operator).
    pub fn new(
        path: &Path,
        database_url: &str,
        deployments: &[Deployment],
        accounts: &Accounts,
        ports: [u16; 2],
    ) -> Self {
        let [listen, operator_listen] = ports.map(|port| format!("127.0.0.1:{port}"));
        let operator_token = format!("op_{}", hex::encode(rand::random::<[u8; 24]>()));
        let file = |name: &str, text: &str| {
            let file = path.join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let settings = Settings {
            server: Server { listen, operator_listen, environment: "sandbox" },
            database: Database { url: database_url.to_owned() },
            secrets: Secrets {
                master_key_file: file("master.key", &hex::encode(rand::random::<[u8; 32]>())),
                operator_token_file: file("operator.token", &operator_token),
            },
            signer: Signer { private_key_file: file("operator.key", &accounts.operator_key()) },
            contracts: Contracts { address: deployments[0].contract, treasury: Accounts::treasury() },
            kyt: Kyt { sanctions_file: file("sanctions.txt", &format!("{}\n", accounts.sanctioned.address())) },
            chains: deployments.iter().map(|chain| (chain.chain, ChainSettings::of(chain))).collect(),
            documents: Documents { folder: path.join("documents") },
            more: toml::Table::new(),
        };
        let folder = Self { path: path.to_owned(), settings, operator_token };
        folder.write();
        folder
    }

    /// Writes the configuration file after a change.
    pub fn write(&self) {
        std::fs::write(self.config(), toml::to_string(&self.settings).unwrap()).unwrap();
    }

    /// Path of the configuration file.
    pub fn config(&self) -> PathBuf {
        self.path.join("payferry.toml")
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::Node;

    #[tokio::test]
    async fn configuration_has_the_documented_form() {
        let node = Node::devchain(8_453, Duration::from_hours(24)).await;
        let accounts = Accounts::known(1);
        let deployment = Deployment::new(Chain::Base, node, &accounts).await;
        let temp = tempfile::tempdir().unwrap();
        let mut folder = Folder::new(temp.path(), "payferry.db", &[deployment], &accounts, [1, 2]);
        folder.settings.more.insert("webhooks".into(), toml::toml!(timeout_ms = 1000).into());
        folder.write();
        let written: toml::Table = std::fs::read_to_string(folder.config()).unwrap().parse().unwrap();
        assert_eq!(written["server"]["listen"].as_str(), Some("127.0.0.1:1"));
        assert_eq!(written["chains"]["base"]["finality"][0]["wait"].as_integer(), Some(2));
        assert_eq!(written["chains"]["base"]["l1_gas"].as_str(), Some("none"));
        assert_eq!(written["webhooks"]["timeout_ms"].as_integer(), Some(1_000));
        let master = std::fs::read_to_string(written["secrets"]["master_key_file"].as_str().unwrap()).unwrap();
        assert_eq!(master.len(), 64);
    }
}
