//! Stage with the sandbox in the test's process, including its chains. Uses the sandbox's routes where they exist.

use std::time::Duration;

use payferry::config::Config;
use payferry::sandbox::{Sandbox, SandboxOptions};
use payferry_actors::System;
use payferry_devchain::Devchain;
use payferry_domain::{Chain, Timestamp, Token};
use payferry_harness::database::TestDatabase;
use payferry_harness::psp::Psp;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Dropped, Stage, Transfer, seconds};

/// Short, for fast finality.
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// A running sandbox.
pub struct OnSandbox {
    sandbox: Sandbox,
    /// The sandbox's own routes require the PSP's key.
    psp: Psp,
    // Dropped after the sandbox.
    _database: TestDatabase,
}

impl OnSandbox {
    fn chain(&self, chain: Chain) -> &Devchain {
        self.sandbox.env().chain(chain).devchain()
    }
}

impl Stage for OnSandbox {
    async fn start() -> Self {
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.server.operator_listen = "127.0.0.1:0".parse().unwrap();
        let database = TestDatabase::create().await;
        let options = SandboxOptions {
            block_time: BLOCK_TIME,
            database_url: Some(database.url().to_owned()),
            ..SandboxOptions::ephemeral()
        };
        let sandbox = Sandbox::start(options, &config).await.unwrap();
        let psp = Psp::new(&sandbox.ready().api_url, &sandbox.ready().api_key);
        Self { sandbox, psp, _database: database }
    }

    fn psp(&self) -> &Psp {
        &self.psp
    }

    fn system(&self) -> &System {
        self.sandbox.system()
    }

    async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        self.psp.sandbox_holdings(chain, token).await
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

    async fn mine(&self, chain: Chain, blocks: u64) {
        self.psp.ok(Method::POST, &format!("/sandbox/chains/{chain}/mine"), json!({"blocks": blocks})).await;
    }

    async fn pause_mining(&self, chain: Chain) {
        self.chain(chain).pause_mining();
    }

    async fn resume_mining(&self, chain: Chain) {
        self.chain(chain).resume_mining();
    }

    async fn reorg(&self, chain: Chain, depth: u64, dropped: Dropped) {
        let dropped = match dropped {
            Dropped::Remine => "remine",
            Dropped::Discard => "discard",
        };
        let body = json!({"depth": depth, "dropped": dropped});
        self.psp.ok(Method::POST, &format!("/sandbox/chains/{chain}/reorg"), body).await;
    }

    async fn advance(&self, secs: u64) {
        self.psp.ok(Method::POST, "/sandbox/clock/advance", json!({"seconds": secs})).await;
    }

    async fn head_secs(&self, chain: Chain) -> u64 {
        self.chain(chain).head().timestamp
    }

    async fn mine_at(&self, chain: Chain, at: Timestamp) {
        self.chain(chain).call("evm_setNextBlockTimestamp", json!([seconds(at)])).await.unwrap();
        let mined = self.chain(chain).mine(1).await.unwrap();
        assert_eq!(mined[0].timestamp, seconds(at));
    }

    async fn jump_chain(&self, chain: Chain, secs: u64) {
        self.chain(chain).jump_time(secs).await.unwrap();
    }

    async fn panic(&self, payment_id: &str) {
        let panicked = self.psp.ok(Method::POST, &format!("/sandbox/payments/{payment_id}/panic"), Value::Null).await;
        assert_eq!(panicked["panics"], 1, "{panicked:#}");
    }

    async fn stop(self) {
        self.sandbox.stop().await;
    }
}
