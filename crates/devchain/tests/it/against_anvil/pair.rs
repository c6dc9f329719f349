//! The two nodes, anvil and a devchain, both over HTTP. Makes the same calls to both and compares the results.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U256};
use parking_lot::Mutex;
use payferry_devchain::{ChainConfig, Mining, RpcError, Tags};
use payferry_harness::anvil::Anvil;
use payferry_harness::node as harness;
use serde_json::{Value, json};

use super::normal::{self, normal};
use crate::env::CHAIN_ID;
pub use crate::env::quantity;

/// Timestamp of block 0 on both nodes.
pub const GENESIS_SECS: u64 = 1_800_000_000;
/// Seconds between the blocks of these tests.
pub const BLOCK_SECS: u64 = 2;
pub const BLOCK_GAS_LIMIT: u64 = 30_000_000;
pub const BASE_FEE_INITIAL_WEI: u64 = 1_000_000_000;
/// Suggested tip of anvil, which cannot be changed.
const PRIORITY_FEE_WEI: u64 = 1_000_000_000;
/// The base fee of the devchain's block 1 follows from block 0 by EIP-1559; anvil uses the configured base fee again.
/// With this base fee of block 0, both are equal from block 1 on.
const DEVCHAIN_BASE_FEE_INITIAL_WEI: u64 = 1_142_857_142;
pub const SAFE_DEPTH: u64 = 2;
/// Time limit for anvil's fee history.
const FEES_PATIENCE: Duration = Duration::from_secs(10);

/// Expected result of one node, if the results differ.
#[derive(Debug)]
pub enum Expected<'a> {
    Is(Value),
    /// Code and start of the message.
    Refused(i64, &'a str),
}

pub type Answer = Result<Value, RpcError>;

/// One of the two nodes.
pub struct Node {
    pub name: &'static str,
    pub url: String,
    http: reqwest::Client,
    /// Names of block hashes, because the hashes always differ.
    names: Mutex<HashMap<String, String>>,
}

impl Node {
    pub async fn post(&self, body: impl Into<reqwest::Body>) -> (u16, String) {
        let request = self.http.post(&self.url).header("content-type", "application/json").body(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub async fn call(&self, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, text) = self.post(body.to_string()).await;
        assert_eq!(status, 200, "{}: {method}: {text}", self.name);
        let mut envelope: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&envelope["jsonrpc"], &envelope["id"]), (&json!("2.0"), &json!(1)), "{}: {text}", self.name);
        match envelope.get_mut("error") {
            Some(error) => Err(RpcError {
                code: error["code"].as_i64().unwrap(),
                message: error["message"].as_str().unwrap().to_owned(),
                data: error.get_mut("data").map(Value::take),
            }),
            None => Ok(envelope["result"].take()),
        }
    }

    /// Makes a call that must succeed.
    pub async fn get(&self, method: &str, params: Value) -> Value {
        self.call(method, params).await.unwrap_or_else(|refusal| panic!("{}: {method}: {refusal:?}", self.name))
    }

    pub async fn number(&self) -> u64 {
        quantity(&self.get("eth_blockNumber", json!([])).await)
    }

    pub async fn hash_of(&self, number: u64) -> Value {
        self.get("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await["hash"].take()
    }

    /// Records which block each hash names. `branch` distinguishes blocks before and after a reorg.
    async fn learn(&self, branch: u64) {
        for number in (0..=self.number().await).rev() {
            let hash = self.hash_of(number).await.as_str().unwrap().to_owned();
            let mut names = self.names.lock();
            if names.contains_key(&hash) {
                break;
            }
            names.insert(hash, format!("<block {number}, branch {branch}>"));
        }
    }
}

/// Both nodes, with the same accounts and blocks. Differences are collected and fail the test at its end.
pub struct Pair {
    pub anvil: Node,
    pub devchain: Node,
    differences: Mutex<Vec<String>>,
    branch: AtomicU64,
    timestamp: AtomicU64,
    _process: Anvil,
    _chain: harness::Node,
}

impl Pair {
    /// Starts both nodes. Blocks are mined only by [`Pair::mine`].
    pub async fn start() -> Self {
        Self::with(Mining::OnDemand).await
    }

    pub async fn with(mining: Mining) -> Self {
        let config = ChainConfig {
            chain_id: CHAIN_ID,
            mining,
            genesis_timestamp_secs: Some(GENESIS_SECS),
            tags: Tags { safe_depth: SAFE_DEPTH, finalized_depth: 2 * SAFE_DEPTH, ..Tags::default() },
            base_fee_initial_wei: BASE_FEE_INITIAL_WEI,
            block_gas_limit: BLOCK_GAS_LIMIT,
            ..ChainConfig::default()
        };
        let process = Anvil::start(&config);
        let chain = harness::Node::devchain_with(ChainConfig {
            base_fee_initial_wei: DEVCHAIN_BASE_FEE_INITIAL_WEI,
            // The minimum of anvil.
            base_fee_min_wei: 0,
            priority_fee_wei: PRIORITY_FEE_WEI,
            ..config
        })
        .await;
        let node = |name, url| Node { name, url, http: reqwest::Client::new(), names: Mutex::default() };
        let pair = Self {
            anvil: node("anvil", process.url()),
            devchain: node("devchain", chain.url().to_owned()),
            differences: Mutex::default(),
            branch: AtomicU64::new(0),
            timestamp: AtomicU64::new(GENESIS_SECS),
            _process: process,
            _chain: chain,
        };
        pair.learn().await;
        pair
    }

    pub fn nodes(&self) -> [&Node; 2] {
        [&self.anvil, &self.devchain]
    }

    /// Call this after blocks were mined automatically, before comparing hashes. [`Pair::mine`] calls it.
    pub async fn learn(&self) {
        for node in self.nodes() {
            node.learn(self.branch.load(Ordering::Relaxed)).await;
        }
        self.until_fees_are_known().await;
    }

    /// Waits until anvil's fee history contains its newest block, which anvil adds a moment after the block can be read.
    async fn until_fees_are_known(&self) {
        let known = async || {
            let history = self.anvil.get("eth_feeHistory", json!(["0x1", "latest", []])).await;
            history["gasUsedRatio"].as_array().is_some_and(|blocks| blocks.len() == 1)
        };
        let waited = async {
            while !known().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(FEES_PATIENCE, waited)
            .await
            .expect("anvil's fee history never contained its newest block");
    }

    /// Call this after a reorg, before any comparison.
    pub async fn branch_off(&self) {
        self.branch.fetch_add(1, Ordering::Relaxed);
        self.learn().await;
    }

    /// Mines one block on each node, [`BLOCK_SECS`] after the previous one.
    pub async fn mine(&self) {
        let timestamp = self.timestamp.fetch_add(BLOCK_SECS, Ordering::Relaxed) + BLOCK_SECS;
        self.each("evm_setNextBlockTimestamp", json!([timestamp])).await;
        self.each("evm_mine", json!([])).await;
        self.learn().await;
    }

    pub async fn fund(&self, address: Address, wei: U256) {
        self.each("anvil_setBalance", json!([address, wei])).await;
    }

    /// Makes a call to both that must succeed, and returns the results, which may differ.
    pub async fn each(&self, method: &str, params: Value) -> [Value; 2] {
        [self.anvil.get(method, params.clone()).await, self.devchain.get(method, params).await]
    }

    /// Sends to both nodes, which must accept it.
    pub async fn send(&self, raw: &Bytes) -> B256 {
        let hash = self.same("eth_sendRawTransaction", json!([raw])).await;
        serde_json::from_value(hash).unwrap()
    }

    /// Makes the same call to both, asserts equal results, and returns the devchain's result.
    pub async fn same(&self, method: &str, params: Value) -> Value {
        self.same_at(method, async |_| params.clone()).await
    }

    /// Like [`Pair::same`], with different parameters for each node, such as block hashes.
    pub async fn same_at(&self, method: &str, params: impl AsyncFn(&Node) -> Value) -> Value {
        let [anvil, devchain] = self.both(method, params).await;
        let normalised = [(&self.anvil, &anvil), (&self.devchain, &devchain)].map(|(node, answer)| match answer {
            Ok(value) => Ok(normal(node.name, value, &node.names.lock())),
            Err(refusal) => Err(refusal.clone()),
        });
        if normalised[0] != normalised[1] {
            let [anvil, devchain] = &normalised;
            self.note(format!("{method}\n{}", normal::diff(anvil, devchain)));
        }
        devchain.unwrap_or_default()
    }

    /// Makes the same call to both.
    pub async fn both(&self, method: &str, params: impl AsyncFn(&Node) -> Value) -> [Answer; 2] {
        let (anvil, devchain) = (params(&self.anvil).await, params(&self.devchain).await);
        [self.anvil.call(method, anvil).await, self.devchain.call(method, devchain).await]
    }

    /// Makes the same call to both, which must reject it with these codes and starts of the messages.
    pub async fn refused(&self, method: &str, params: Value, anvil: (i64, &str), devchain: (i64, &str)) {
        let [anvil, devchain] = [anvil, devchain].map(|(code, words)| Expected::Refused(code, words));
        self.differs(method, params, &anvil, &devchain).await;
    }

    /// Makes the same calls to both, which must reject them as malformed.
    pub async fn malformed(&self, method: &str, calls: impl IntoIterator<Item = Value>) {
        for params in calls {
            self.refused(method, params, (-32_602, ""), (-32_602, "invalid params: ")).await;
        }
    }

    /// Asserts an intended difference: the same call to both, with different results.
    pub async fn differs(&self, method: &str, params: Value, anvil: &Expected<'_>, devchain: &Expected<'_>) {
        let answers = self.both(method, async |_| params.clone()).await;
        for ((node, answer), expected) in self.nodes().into_iter().zip(answers).zip([anvil, devchain]) {
            let as_expected = match (expected, &answer) {
                (Expected::Is(wanted), Ok(value)) => wanted == value,
                (Expected::Refused(code, words), Err(refusal)) => {
                    refusal.code == *code && refusal.message.starts_with(words)
                }
                _ => false,
            };
            if !as_expected {
                self.note(format!("{method} {params}: {} should return {expected:?}: {answer:?}", node.name));
            }
        }
    }

    pub fn note(&self, difference: String) {
        self.differences.lock().push(difference);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let differences = self.differences.lock();
        if std::thread::panicking() {
            eprintln!("{}", differences.join("\n\n"));
        } else {
            assert!(differences.is_empty(), "{} differences\n\n{}", differences.len(), differences.join("\n\n"));
        }
    }
}
