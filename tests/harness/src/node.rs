//! An EVM node by its URL: devchain over HTTP, anvil, or any other node with anvil's control methods.
//!
//! All access uses JSON-RPC, so that a test runs on any of them. Deliberately absent: deployed contracts (`deployment`)
//! and payers (`payers`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::{ChainConfig, Devchain, Mining, Tags};
use payferry_testkit::stub::serve_until_dropped;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::anvil::Anvil;
use crate::install_tls;

pub use payferry_devchain::Dropped;

/// Maximum distance between blocks, in seconds, that the service does not treat as an outage.
const SPACING_SECS: u64 = 15;

/// A running node. Clones share it; processes and tasks started for it end with the last clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    url: String,
    chain_id: u64,
    http: reqwest::Client,
    kind: Kind,
}

/// Implementation behind the URL.
enum Kind {
    /// A devchain in this process.
    Devchain { chain: Devchain, _serving: AbortOnDropHandle<()> },
    /// An anvil process that mines on request of this process.
    Anvil { _anvil: Anvil, paused: Arc<Mutex<bool>>, _mining: AbortOnDropHandle<()> },
}

/// A request that the node rejected.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// JSON-RPC error code.
    pub code: i64,
    /// Error message of the node.
    pub message: String,
    /// Additional error data, if any.
    pub data: Value,
}

/// A block of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Block number, from 0.
    pub number: u64,
    /// Block hash.
    pub hash: B256,
    /// Unix seconds.
    pub timestamp: u64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("url", &self.inner.url).field("chain_id", &self.inner.chain_id).finish()
    }
}

impl Node {
    /// Starts a devchain in memory, served over HTTP on a free local port. Its `safe` and `finalized` blocks jump.
    pub async fn devchain(chain_id: u64, block_time: Duration) -> Self {
        let (mining, tags) = (Mining::Interval(block_time), Tags::JUMPING);
        Self::devchain_with(ChainConfig { chain_id, mining, tags, ..ChainConfig::default() }).await
    }

    /// Starts a devchain with this configuration.
    pub async fn devchain_with(config: ChainConfig) -> Self {
        Self::serving(Devchain::open(config).await.unwrap()).await
    }

    /// Serves a devchain of this process over HTTP on a free local port.
    pub async fn serving(chain: Devchain) -> Self {
        let chain_id = chain.chain_id();
        let (url, serving) = serve_until_dropped(chain.router()).await;
        let kind = Kind::Devchain { chain, _serving: serving };
        Self { inner: Arc::new(Inner { url, chain_id, http: client(), kind }) }
    }

    /// Starts an anvil on a free local port. Each block is mined by a request, because anvil can only resume mining
    /// with intervals of whole seconds.
    pub async fn anvil(chain_id: u64, block_time: Duration) -> Self {
        let options = ChainConfig { chain_id, mining: Mining::OnDemand, ..ChainConfig::default() };
        let anvil = tokio::task::spawn_blocking(move || Anvil::start(&options)).await.unwrap();
        let (url, http, paused) = (anvil.url(), client(), Arc::new(Mutex::new(false)));
        let mining = tokio::spawn(mine_by_interval(url.clone(), http.clone(), block_time, Arc::clone(&paused)));
        let kind = Kind::Anvil { _anvil: anvil, paused, _mining: AbortOnDropHandle::new(mining) };
        Self { inner: Arc::new(Inner { url, chain_id, http, kind }) }
    }

    /// JSON-RPC URL.
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Its EIP-155 chain id.
    pub fn chain_id(&self) -> u64 {
        self.inner.chain_id
    }

    /// The devchain if it runs in this process: for its injected faults, which other nodes do not have.
    pub fn in_process(&self) -> Option<&Devchain> {
        match &self.inner.kind {
            Kind::Devchain { chain, .. } => Some(chain),
            Kind::Anvil { .. } => None,
        }
    }

    /// Sends a request that the node may reject. Panics without an answer.
    pub async fn try_rpc(&self, method: &str, params: Value) -> Result<Value, Refused> {
        let mut answer = post(&self.inner.http, &self.inner.url, method, &params)
            .await
            .unwrap_or_else(|error| panic!("{method}: {error}"));
        match answer.get_mut("error") {
            Some(error) => Err(Refused {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error["data"].take(),
            }),
            None => Ok(answer["result"].take()),
        }
    }

    /// Sends a request that must succeed.
    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        let answer = self.try_rpc(method, params.clone()).await;
        answer.unwrap_or_else(|refused| panic!("{method} {params}: {refused:?}"))
    }

    /// Sends a request that must succeed, and parses its result as `T`.
    pub async fn ask<T: DeserializeOwned>(&self, method: &str, params: Value) -> T {
        let answer = self.rpc(method, params).await;
        serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{method}: {error}: {answer}"))
    }

    /// Calls a contract function at the newest block.
    pub async fn call<C: SolCall>(&self, to: Address, call: &C) -> C::Return {
        let data = Bytes::from(call.abi_encode());
        let output: Bytes = self.ask("eth_call", json!([{"to": to, "data": data}, "latest"])).await;
        C::abi_decode_returns(&output).unwrap_or_else(|error| panic!("{}: {error}: {output}", C::SIGNATURE))
    }

    /// The newest block.
    pub async fn head(&self) -> Head {
        let block = self.rpc("eth_getBlockByNumber", json!(["latest", false])).await;
        Head {
            number: quantity(&block["number"]),
            hash: serde_json::from_value(block["hash"].clone()).unwrap(),
            timestamp: quantity(&block["timestamp"]),
        }
    }

    /// Next nonce of an account at `tag`: latest or pending.
    pub async fn nonce(&self, account: Address, tag: &str) -> u64 {
        quantity(&self.rpc("eth_getTransactionCount", json!([account, tag])).await)
    }

    /// Returns true if a contract exists at the address.
    pub async fn has_code(&self, address: Address) -> bool {
        let code: Bytes = self.ask("eth_getCode", json!([address, "latest"])).await;
        !code.is_empty()
    }

    /// Token balance of an account, in base units.
    pub async fn balance_of(&self, token: Address, account: Address) -> U256 {
        self.call(token, &TokenContract::balanceOfCall { account }).await
    }

    /// Receipt of a mined transaction.
    pub async fn receipt(&self, hash: B256) -> Option<TransactionReceipt> {
        self.ask("eth_getTransactionReceipt", json!([hash])).await
    }

    /// Returns logs that match the filter.
    pub async fn logs(&self, filter: &Filter) -> Vec<Log> {
        self.ask("eth_getLogs", json!([filter])).await
    }

    /// Sends a signed transaction.
    pub async fn send_raw(&self, raw: &Bytes) -> Result<B256, Refused> {
        let hash = self.try_rpc("eth_sendRawTransaction", json!([raw])).await?;
        Ok(serde_json::from_value(hash).unwrap())
    }

    /// Mines this number of blocks at once.
    pub async fn mine(&self, blocks: u64) {
        self.rpc("anvil_mine", json!([blocks])).await;
    }

    /// Mines one block with the pending transactions and this timestamp (Unix seconds). No other block may be mined
    /// meanwhile.
    pub async fn mine_at(&self, timestamp: u64) {
        self.rpc("evm_setNextBlockTimestamp", json!([timestamp])).await;
        self.rpc("evm_mine", json!([])).await;
        assert_eq!(self.head().await.timestamp, timestamp);
    }

    /// Advances a paused chain's time to this timestamp (Unix seconds), with blocks in between.
    pub async fn advance_to(&self, timestamp: u64) {
        // To the second: otherwise the node's clock would advance during the call.
        let mut head = self.head().await.timestamp;
        while head < timestamp {
            head = timestamp.min(head + SPACING_SECS);
            self.mine_at(head).await;
        }
    }

    /// Pauses interval mining; [`Node::mine`] and similar methods still work.
    pub async fn pause_mining(&self) {
        self.set_paused(true).await;
    }

    /// Resumes interval mining.
    pub async fn resume_mining(&self) {
        self.set_paused(false).await;
    }

    async fn set_paused(&self, pause: bool) {
        match &self.inner.kind {
            Kind::Devchain { chain, .. } if pause => chain.pause_mining(),
            Kind::Devchain { chain, .. } => chain.resume_mining(),
            Kind::Anvil { paused, .. } => *paused.lock().await = pause,
        }
    }

    /// Advances chain time with blocks in between, so that it does not look like an outage.
    pub async fn advance_time(&self, secs: u64) {
        let mut left = secs;
        while left > 0 {
            let step = left.min(SPACING_SECS);
            self.jump_time(step).await;
            left -= step;
        }
    }

    /// Advances chain time in one step, like an outage, and mines one block.
    pub async fn jump_time(&self, secs: u64) {
        self.rpc("evm_increaseTime", json!([secs])).await;
        self.rpc("evm_mine", json!([])).await;
    }

    /// Replaces the last `depth` blocks by `depth` + 1 others.
    pub async fn reorg(&self, depth: u64, dropped: Dropped) {
        match &self.inner.kind {
            Kind::Devchain { .. } => {
                self.rpc("anvil_reorg", json!([depth, [], dropped == Dropped::Remine])).await;
            }
            Kind::Anvil { paused, .. } => {
                // Anvil's reorg drops all transactions, and mines one block less.
                let _paused = paused.lock().await;
                let raw = if dropped == Dropped::Remine { self.newest_transactions(depth).await } else { Vec::new() };
                self.rpc("anvil_reorg", json!([depth, []])).await;
                self.rpc("evm_mine", json!([])).await;
                for raw in raw {
                    self.send_raw(&raw).await.unwrap_or_else(|refused| panic!("put back: {refused:?}"));
                }
            }
        }
    }

    /// Raw transactions of the newest blocks, in order.
    async fn newest_transactions(&self, blocks: u64) -> Vec<Bytes> {
        let head = self.head().await.number;
        let mut raw = Vec::new();
        for number in (head + 1).saturating_sub(blocks)..=head {
            let block = self.rpc("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await;
            for hash in block["transactions"].as_array().unwrap() {
                raw.push(self.ask("eth_getRawTransactionByHash", json!([hash])).await);
            }
        }
        raw
    }

    /// Sets an account's balance, in wei.
    pub async fn set_balance(&self, account: Address, wei: U256) {
        self.rpc("anvil_setBalance", json!([account, wei])).await;
    }
}

fn client() -> reqwest::Client {
    install_tls();
    reqwest::Client::new()
}

async fn post(http: &reqwest::Client, url: &str, method: &str, params: &Value) -> Result<Value, reqwest::Error> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    http.post(url).json(&request).send().await?.json().await
}

/// Requests a block after each interval, unless mining is paused.
async fn mine_by_interval(url: String, http: reqwest::Client, interval: Duration, paused: Arc<Mutex<bool>>) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        // Held until the block is mined: after `pause`, no block is pending.
        let paused = paused.lock().await;
        if !*paused {
            // A stopped node cannot mine; other requests report that error.
            let _ = post(&http, &url, "evm_mine", &json!([])).await;
        }
    }
}

fn quantity(value: &Value) -> u64 {
    let number: U256 = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"));
    number.to()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No block is mined unless a test mines it.
    const NEVER: Duration = Duration::from_hours(24);

    #[tokio::test]
    async fn controls_advance_blocks_and_time_on_devchain() {
        controls_advance_blocks_and_time(Node::devchain(8_453, NEVER).await).await;
    }

    #[tokio::test]
    async fn controls_advance_blocks_and_time_on_anvil() {
        controls_advance_blocks_and_time(Node::anvil(8_453, NEVER).await).await;
    }

    async fn controls_advance_blocks_and_time(node: Node) {
        assert_eq!(node.rpc("eth_chainId", json!([])).await, "0x2105");
        let before = node.head().await;
        node.mine(3).await;
        assert_eq!(node.head().await.number, before.number + 3);
        node.advance_time(40).await;
        let advanced = node.head().await;
        assert_eq!(advanced.number, before.number + 6, "blocks of 15, 15 and 10 seconds");
        assert!(advanced.timestamp >= before.timestamp + 40);
        node.jump_time(100).await;
        let jumped = node.head().await;
        assert_eq!(jumped.number, advanced.number + 1);
        node.mine_at(jumped.timestamp + 1_000).await;
        assert_eq!(node.head().await.timestamp, jumped.timestamp + 1_000);
        let refused = node.try_rpc("eth_nonsense", json!([])).await.unwrap_err();
        assert_eq!(refused.code, -32_601);
    }

    #[tokio::test]
    async fn devchain_mines_by_interval_until_paused() {
        mines_by_interval_until_paused(Node::devchain(137, Duration::from_millis(10)).await).await;
    }

    #[tokio::test]
    async fn anvil_mines_by_interval_until_paused() {
        mines_by_interval_until_paused(Node::anvil(137, Duration::from_millis(10)).await).await;
    }

    async fn mines_by_interval_until_paused(node: Node) {
        let grows = async || {
            let before = node.head().await.number;
            let since = std::time::Instant::now();
            while node.head().await.number == before && since.elapsed() < Duration::from_secs(30) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            node.head().await.number > before
        };
        assert!(grows().await);
        node.pause_mining().await;
        // A block may still be pending.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let still = node.head().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(node.head().await, still);
        node.reorg(1, Dropped::Discard).await;
        let other = node.head().await;
        assert_eq!(other.number, still.number + 1);
        assert_ne!(other.hash, still.hash);
        node.resume_mining().await;
        assert!(grows().await);
    }
}
