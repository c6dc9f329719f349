//! Stage with the sandbox in the test's process, including its chains. Uses the sandbox's routes where they exist.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry::config::Config;
use payferry::sandbox::{Sandbox, SandboxOptions};
use payferry_actors::System;
use payferry_devchain::DevWallet;
use payferry_domain::{Chain, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::node::Node;
use payferry_harness::psp::Psp;
use reqwest::Method;
use serde_json::json;

use super::{Stage, Transfer};

/// Short, for fast finality.
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// A running sandbox.
pub struct OnSandbox {
    sandbox: Sandbox,
    /// The sandbox's own routes require the PSP's key.
    psp: Psp,
    nodes: BTreeMap<Chain, Node>,
    // Dropped after the sandbox.
    _database: TestDatabase,
}

/// Starts a sandbox on free ports over this database.
pub async fn sandbox_over(database_url: String, block_time: Duration) -> Sandbox {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.server.operator_listen = "127.0.0.1:0".parse().unwrap();
    let options = SandboxOptions { block_time, database_url: Some(database_url), ..SandboxOptions::ephemeral() };
    Sandbox::start(options, &config).await.unwrap()
}

impl Stage for OnSandbox {
    async fn start() -> Self {
        let database = TestDatabase::create().await;
        let sandbox = sandbox_over(database.url().to_owned(), BLOCK_TIME).await;
        let psp = Psp::new(&sandbox.ready().api_url, &sandbox.ready().api_key);
        let mut nodes = BTreeMap::new();
        for (chain, sandboxed) in sandbox.env().chains() {
            nodes.insert(chain, Node::serving(sandboxed.devchain().clone()).await);
        }
        Self { sandbox, psp, nodes, _database: database }
    }

    fn psp(&self) -> &Psp {
        &self.psp
    }

    fn system(&self) -> &System {
        self.sandbox.system()
    }

    fn node(&self, chain: Chain) -> &Node {
        &self.nodes[&chain]
    }

    async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        self.psp.sandbox_holdings(chain, token).await
    }

    fn payer(&self) -> DevWallet {
        DevWallet::from_seed("payferry sandbox payer 0")
    }

    async fn pay(&self, payment_id: &str, transfer: Transfer) -> String {
        let mut body = json!({"from": if transfer.is_sanctioned { "sanctioned" } else { "clean" }});
        let said = [
            ("amount", transfer.amount),
            ("currency", transfer.token.map(Token::as_str)),
            ("chain", transfer.chain.map(Chain::as_str)),
        ];
        for (field, value) in said.into_iter().filter(|(_, value)| value.is_some()) {
            body[field] = json!(value);
        }
        let paid = self.psp.ok(Method::POST, &format!("/sandbox/payments/{payment_id}/pay"), body).await;
        paid["tx_hash"].as_str().unwrap().to_owned()
    }

    async fn advance(&self, secs: u64) {
        self.psp.ok(Method::POST, "/sandbox/clock/advance", json!({"seconds": secs})).await;
    }

    async fn stop(self) {
        self.sandbox.stop().await;
    }
}
