//! The configuration of the real binary, and the folder with its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use payferry_devchain::DevWallet;
use payferry_domain::{Chain, Token};
use serde_json::{Value, json};

use crate::deployment::{Accounts, Deployment};

/// Test defaults of a chain: short polling interval, start at the first block, final after two blocks.
fn chain_settings(deployment: &Deployment) -> Value {
    json!({
        "endpoints": [deployment.node.url()],
        "chain_id": deployment.node.chain_id(),
        "usdc": deployment.token(Token::Usdc),
        "usdt": deployment.token(Token::Usdt),
        "lookalikes": [],
        "start_block": 0,
        "finality": [{"wait": 2}],
        "poll_interval_ms": 100,
        "l1_data": "none",
        "priority_fee_min_gwei": "0",
    })
}

/// A folder with a configuration and its files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// `payferry.toml`, as far as tests set it. [`Folder::write`] writes it to the file.
    pub settings: toml::Table,
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
        let key = |wallet: &DevWallet| hex::encode(wallet.signer().to_bytes());
        let chains: BTreeMap<Chain, Value> = deployments.iter().map(|one| (one.chain, chain_settings(one))).collect();
        let settings = json!({
            // No drain, so that a stop takes no time.
            "server": {"listen": listen, "operator_listen": operator_listen, "environment": "sandbox", "drain_secs": 0},
            "database": {"url": database_url},
            "secrets": {
                "master_key_file": file("master.key", &hex::encode(rand::random::<[u8; 32]>())),
                "operator_token_file": file("operator.token", &operator_token),
            },
            "signer": {
                "settler": {"private_key_file": file("settler.key", &key(&accounts.settler))},
                "sender": {"private_key_file": file("sender.key", &key(&accounts.sender))},
            },
            "contracts": {"address": deployments[0].contract, "treasury": Accounts::treasury()},
            "kyt": {"sanctions_file": file("sanctions.txt", &format!("{}\n", accounts.sanctioned.address()))},
            "chains": chains,
            "documents": {"folder": path.join("documents")},
        });
        let settings = toml::Table::try_from(settings).unwrap();
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
        folder.settings.insert("webhooks".into(), toml::toml!(timeout_ms = 1000).into());
        folder.write();
        let written: toml::Table = std::fs::read_to_string(folder.config()).unwrap().parse().unwrap();
        assert_eq!(written["server"]["listen"].as_str(), Some("127.0.0.1:1"));
        assert_eq!(written["chains"]["base"]["finality"][0]["wait"].as_integer(), Some(2));
        assert_eq!(written["chains"]["base"]["l1_data"].as_str(), Some("none"));
        assert_eq!(written["webhooks"]["timeout_ms"].as_integer(), Some(1_000));
        let master = std::fs::read_to_string(written["secrets"]["master_key_file"].as_str().unwrap()).unwrap();
        assert_eq!(master.len(), 64);
    }
}
