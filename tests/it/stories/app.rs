//! A sandbox in the test's process, whose chains the test can hold still.

use std::time::Duration;

use payferry::config::Config;
use payferry::sandbox::{Sandbox, SandboxOptions};
use payferry_actors::System;
use payferry_devchain::Devchain;
use payferry_domain::{Chain, Timestamp};
use serde_json::json;

/// Short, so that finality comes soon.
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// A running sandbox.
pub struct StoryApp {
    sandbox: Sandbox,
}

impl StoryApp {
    pub async fn start() -> Self {
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.server.operator_listen = "127.0.0.1:0".parse().unwrap();
        let options = SandboxOptions { block_time: BLOCK_TIME, ..SandboxOptions::ephemeral() };
        Self { sandbox: Sandbox::start(options, &config).await.unwrap() }
    }

    pub async fn stop(self) {
        self.sandbox.stop().await;
    }

    pub fn url(&self) -> &str {
        &self.sandbox.ready().api_url
    }

    pub fn api_key(&self) -> &str {
        &self.sandbox.ready().api_key
    }

    pub fn system(&self) -> &System {
        self.sandbox.system()
    }

    fn chain(&self, chain: Chain) -> &Devchain {
        self.sandbox.world().chain(chain).devchain()
    }

    pub fn pause_mining(&self, chain: Chain) {
        self.chain(chain).pause_mining();
    }

    pub fn resume_mining(&self, chain: Chain) {
        self.chain(chain).resume_mining();
    }

    /// Moves the chain's time on to shortly before a moment, with blocks all the way.
    pub async fn advance_chain_to(&self, chain: Chain, at: Timestamp) {
        let head = self.chain(chain).head().timestamp;
        let to = u64::try_from(at.as_millis() / 1_000).unwrap();
        self.chain(chain).advance_time(to - head, 15).await.unwrap();
    }

    /// Mines one block with what waits, at the second of this moment.
    pub async fn mine_at(&self, chain: Chain, at: Timestamp) {
        let seconds = at.as_millis() / 1_000;
        self.chain(chain).call("evm_setNextBlockTimestamp", json!([seconds])).await.unwrap();
        let mined = self.chain(chain).mine(1).await.unwrap();
        assert_eq!(i64::try_from(mined[0].timestamp).unwrap(), seconds);
    }

    /// The chain stands still for so long.
    pub async fn jump_chain(&self, chain: Chain, secs: u64) {
        self.chain(chain).jump_time(secs).await.unwrap();
    }
}
