//! Talking to a chain: typed calls over one or more endpoints, with time-outs, fail-over and errors that say what to do.
//!
//! Deliberately absent: waiting and retrying (the callers know how long they can), alloy's fallback layer (it takes the
//! first answer, also a lagging one), and endpoint addresses in any error (they carry keys).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy::primitives::{Bytes, U64, U256};
use alloy::rpc::client::RpcClient;
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::{IntoBoxTransport, TransportError};
use futures::future::join_all;
use payferry_domain::{Address, Hash32};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use super::wire::{BlockHeader, ClientError};
use super::wire::{FeeHistory, WireHeader, classify};
use crate::wallet::alloy_hash;

/// How long an answer may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Most calls in one JSON-RPC batch.
pub const BATCH_CALLS_MAX: usize = 100;
/// Blocks that a fee suggestion looks back on.
const FEE_HISTORY_BLOCKS: u64 = 5;

/// One call: method and parameters.
type Call = (&'static str, Value);
/// The answers to several calls, each with an error of its own.
type Answers = Vec<Result<Box<RawValue>, ClientError>>;

/// A chain's endpoints. Clones share them and the knowledge of which one answers.
#[derive(Clone, Debug)]
pub struct ChainClient {
    endpoints: Vec<RpcClient>,
    preferred: Arc<AtomicUsize>,
    timeout: Duration,
    batches: bool,
}

/// The blocks that matter at a poll, all from one endpoint.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The newest block.
    pub latest: BlockHeader,
    /// The newest `safe` block, if asked for and known.
    pub safe: Option<BlockHeader>,
    /// The newest `finalized` block, if asked for and known.
    pub finalized: Option<BlockHeader>,
    /// The block at the cursor's number.
    pub at_cursor: Option<BlockHeader>,
}

/// What the fee market asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeMarket {
    /// Base fee of the next block, wei per gas.
    pub base_fee_wei: u128,
    /// What others tip, wei per gas.
    pub priority_fee_wei: u128,
}

impl ChainClient {
    /// Over one transport, such as an in-process chain's.
    pub fn new(transport: impl IntoBoxTransport) -> Self {
        Self::over(RpcClient::new(transport, true))
    }

    /// Over HTTP. The process must have installed a rustls provider before the first `https` request.
    pub fn http(url: url::Url) -> Result<Self, ClientError> {
        Self::http_all([url], REQUEST_TIMEOUT, true)
    }

    /// Over several HTTP endpoints of one chain, in the order in which they are wanted. `timeout` is for one answer;
    /// `batches` says whether they know JSON-RPC batches.
    pub fn http_all(
        urls: impl IntoIterator<Item = url::Url>,
        timeout: Duration,
        batches: bool,
    ) -> Result<Self, ClientError> {
        crate::tls::install();
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|_| ClientError::Unavailable("the HTTP client could not be built".to_owned()))?;
        let endpoints = urls.into_iter().map(|url| RpcClient::new_http_with_client(client.clone(), url)).collect();
        Ok(Self { endpoints, preferred: Arc::new(AtomicUsize::new(0)), timeout, batches })
    }

    fn over(client: RpcClient) -> Self {
        Self {
            endpoints: vec![client],
            preferred: Arc::new(AtomicUsize::new(0)),
            timeout: REQUEST_TIMEOUT,
            batches: true,
        }
    }

    /// These endpoints and then those of `other`.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.endpoints.extend(other.endpoints);
        self
    }

    /// Another time-out than [`REQUEST_TIMEOUT`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// For endpoints that know no JSON-RPC batches: calls are made one by one, side by side.
    #[must_use]
    pub fn without_batches(mut self) -> Self {
        self.batches = false;
        self
    }

    /// EIP-155 chain id.
    pub async fn chain_id(&self) -> Result<u64, ClientError> {
        self.ask::<U64>("eth_chainId", json!([])).await.map(|id| id.to())
    }

    /// Whether something is deployed there.
    pub async fn has_code(&self, address: Address) -> Result<bool, ClientError> {
        let code: Bytes = self.ask("eth_getCode", json!([address, "latest"])).await?;
        Ok(!code.is_empty())
    }

    /// Balance of the chain's own coin, wei.
    pub async fn balance_wei(&self, address: Address) -> Result<U256, ClientError> {
        self.ask("eth_getBalance", json!([address, "latest"])).await
    }

    /// Runs a call on the newest block.
    pub async fn call(&self, to: Address, input: Vec<u8>) -> Result<Bytes, ClientError> {
        self.ask("eth_call", json!([{"to": to, "data": Bytes::from(input)}, "latest"])).await
    }

    /// Runs several calls on the newest block; each answers for itself.
    pub async fn calls(&self, calls: Vec<(Address, Vec<u8>)>) -> Result<Vec<Result<Bytes, ClientError>>, ClientError> {
        let call =
            |(to, input): (Address, Vec<u8>)| ("eth_call", json!([{"to": to, "data": Bytes::from(input)}, "latest"]));
        let answers = self.ask_many(calls.into_iter().map(call).collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.and_then(|raw| parse(&raw))).collect())
    }

    /// Gas that a call of this account would take now, by the node's own account of it.
    pub async fn estimate_gas(&self, from: Address, to: Address, input: Vec<u8>) -> Result<u64, ClientError> {
        let call = json!([{"from": from, "to": to, "data": Bytes::from(input)}]);
        self.ask::<U64>("eth_estimateGas", call).await.map(|gas| gas.to())
    }

    /// The nonce that the account's next transaction has, by the newest or another block (`latest`, `finalized`).
    pub async fn nonce(&self, account: Address, block: &str) -> Result<u64, ClientError> {
        self.ask::<U64>("eth_getTransactionCount", json!([account, block])).await.map(|nonce| nonce.to())
    }

    /// The newest block, safe and finalized (if asked for), and the block at `cursor`, all from one endpoint. An
    /// endpoint whose head is below `floor` is passed over while another one is further; if none is, the furthest
    /// answers.
    pub async fn heads(
        &self,
        has_safe: bool,
        has_finalized: bool,
        cursor: Option<u64>,
        floor: u64,
    ) -> Result<Heads, ClientError> {
        let mut tags = vec![json!("latest")];
        tags.extend(has_safe.then(|| json!("safe")));
        tags.extend(has_finalized.then(|| json!("finalized")));
        tags.extend(cursor.map(|number| json!(U64::from(number))));
        let calls: Vec<Call> = tags.into_iter().map(|tag| ("eth_getBlockByNumber", json!([tag, false]))).collect();
        let mut best: Option<Heads> = None;
        let mut trouble = ClientError::UnknownBlock;
        for index in self.order() {
            match self.heads_of(index, calls.clone(), has_safe, has_finalized, cursor.is_some()).await {
                Ok(heads) => {
                    let enough = heads.latest.number >= floor;
                    if best.as_ref().is_none_or(|best| best.latest.number < heads.latest.number) {
                        self.preferred.store(index, Ordering::Relaxed);
                        best = Some(heads);
                    }
                    if enough {
                        break;
                    }
                }
                Err(error) => trouble = error,
            }
        }
        best.ok_or(trouble)
    }

    async fn heads_of(
        &self,
        index: usize,
        calls: Vec<Call>,
        has_safe: bool,
        has_finalized: bool,
        has_cursor: bool,
    ) -> Result<Heads, ClientError> {
        let mut answers = self.many_on(index, calls).await?.into_iter();
        let mut next = |asked: bool| -> Result<Option<BlockHeader>, ClientError> {
            if !asked {
                return Ok(None);
            }
            let raw = answers.next().unwrap_or(Err(ClientError::UnknownBlock))?;
            parse::<Option<WireHeader>>(&raw).map(|header| header.map(BlockHeader::from))
        };
        let latest = next(true)?.ok_or(ClientError::UnknownBlock)?;
        // A young chain has no safe or finalized block yet, and says so with an error.
        let safe = match next(has_safe) {
            Err(ClientError::UnknownBlock) => None,
            answer => answer?,
        };
        let finalized = match next(has_finalized) {
            Err(ClientError::UnknownBlock) => None,
            answer => answer?,
        };
        Ok(Heads { latest, safe, finalized, at_cursor: next(has_cursor)? })
    }

    /// The headers of these blocks; an unknown one is an error.
    pub async fn headers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<BlockHeader>, ClientError> {
        let call = |number: u64| ("eth_getBlockByNumber", json!([U64::from(number), false]));
        let answers = self.ask_many(numbers.into_iter().map(call).collect()).await?;
        let header = |raw: Box<RawValue>| parse::<Option<WireHeader>>(&raw)?.ok_or(ClientError::UnknownBlock);
        answers.into_iter().map(|answer| answer.and_then(header).map(BlockHeader::from)).collect()
    }

    /// The headers of those of these blocks that the chain has.
    pub async fn known_headers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<BlockHeader>, ClientError> {
        let call = |number: u64| ("eth_getBlockByNumber", json!([U64::from(number), false]));
        let answers = self.ask_many(numbers.into_iter().map(call).collect()).await?;
        let header = |raw: Box<RawValue>| parse::<Option<WireHeader>>(&raw);
        let headers = answers.into_iter().map(|answer| answer.and_then(header));
        headers.filter_map(|header| header.transpose().map(|header| header.map(BlockHeader::from))).collect()
    }

    /// The header of the block with this hash; `None` if it is not of the chain (any more).
    pub async fn header_by_hash(&self, hash: Hash32) -> Result<Option<BlockHeader>, ClientError> {
        let header: Option<WireHeader> = self.ask("eth_getBlockByHash", json!([hash, false])).await?;
        Ok(header.map(BlockHeader::from))
    }

    /// Logs in a range of blocks.
    pub async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, ClientError> {
        self.ask("eth_getLogs", json!([filter])).await
    }

    /// Logs of blocks named by their hashes, in that order; a block that the node does not know is an error.
    pub async fn logs_by_hash(&self, filter: &Filter, blocks: &[Hash32]) -> Result<Vec<Vec<Log>>, ClientError> {
        let call = |hash: &Hash32| ("eth_getLogs", json!([filter.clone().at_block_hash(alloy_hash(*hash))]));
        let answers = self.ask_many(blocks.iter().map(call).collect()).await?;
        answers.into_iter().map(|answer| answer.and_then(|raw| parse(&raw))).collect()
    }

    /// All logs of a block, out of its receipts: dear, and asked for only where `eth_getLogs` is doubted.
    pub async fn logs_of_receipts(&self, block: Hash32) -> Result<Vec<Log>, ClientError> {
        let receipts: Option<Vec<TransactionReceipt>> = self.ask("eth_getBlockReceipts", json!([block])).await?;
        let receipts = receipts.ok_or(ClientError::UnknownBlock)?;
        Ok(receipts.into_iter().flat_map(|receipt| receipt.inner.logs().to_vec()).collect())
    }

    /// Receipts by transaction hash, in that order; `None` for what is not mined.
    pub async fn receipts(&self, hashes: &[Hash32]) -> Result<Vec<Option<TransactionReceipt>>, ClientError> {
        let call = |hash: &Hash32| ("eth_getTransactionReceipt", json!([hash]));
        let answers = self.ask_many(hashes.iter().map(call).collect()).await?;
        answers.into_iter().map(|answer| answer.and_then(|raw| parse(&raw))).collect()
    }

    /// Base fee of the next block and what others tip (the median of the last blocks).
    pub async fn fee_market(&self) -> Result<FeeMarket, ClientError> {
        let blocks = U64::from(FEE_HISTORY_BLOCKS);
        let history: FeeHistory = self.ask("eth_feeHistory", json!([blocks, "latest", [50.0]])).await?;
        history.market().ok_or_else(|| ClientError::Malformed("a fee history without fees".to_owned()))
    }

    /// Sends signed bytes to every endpoint. Good if one of them takes them or has them already.
    pub async fn broadcast(&self, raw: &str) -> Result<(), ClientError> {
        let sends = (0..self.endpoints.len()).map(|index| self.one_on(index, "eth_sendRawTransaction", json!([raw])));
        let mut worst: Option<ClientError> = None;
        for answer in join_all(sends).await {
            match answer {
                Ok(_) | Err(ClientError::AlreadyKnown) => return Ok(()),
                // The one that says something about the transaction is worth more than the one that is away.
                Err(error) if worst.as_ref().is_none_or(ClientError::is_about_the_endpoint) => worst = Some(error),
                Err(_) => {}
            }
        }
        Err(worst.unwrap_or(ClientError::UnknownBlock))
    }

    async fn ask<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ClientError> {
        let mut trouble = ClientError::Unavailable("no endpoint is configured".to_owned());
        for index in self.order() {
            match self.one_on(index, method, params.clone()).await.and_then(|raw| parse(&raw)) {
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) if error.is_about_the_endpoint() => trouble = error,
                Err(error) => return Err(error),
            }
        }
        Err(trouble)
    }

    async fn ask_many(&self, calls: Vec<Call>) -> Result<Answers, ClientError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut outcome = Err(ClientError::Unavailable("no endpoint is configured".to_owned()));
        for index in self.order() {
            outcome = self.many_on(index, calls.clone()).await;
            match &outcome {
                Ok(answers) if !answers.iter().flat_map(Result::as_ref).any(is_null_block(&calls)) => {
                    let away = |answer: &Result<_, ClientError>| {
                        answer.as_ref().is_err_and(ClientError::is_about_the_endpoint)
                    };
                    if !answers.iter().any(away) {
                        self.preferred.store(index, Ordering::Relaxed);
                        break;
                    }
                }
                Err(error) if !error.is_about_the_endpoint() => break,
                _ => {}
            }
        }
        outcome
    }

    /// Endpoints, the one that answered last first.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let len = self.endpoints.len();
        let first = self.preferred.load(Ordering::Relaxed);
        (0..len).map(move |offset| (first + offset) % len)
    }

    async fn one_on(&self, index: usize, method: &'static str, params: Value) -> Result<Box<RawValue>, ClientError> {
        let request = self.endpoints[index].request::<Value, Box<RawValue>>(method, params);
        match tokio::time::timeout(self.timeout, request).await {
            Ok(answer) => answer.map_err(|error| classify(method, &error)),
            Err(_) => Err(ClientError::Timeout),
        }
    }

    async fn many_on(&self, index: usize, mut calls: Vec<Call>) -> Result<Answers, ClientError> {
        if !self.batches || calls.len() == 1 {
            let requests = calls.into_iter().map(|(method, params)| self.one_on(index, method, params));
            return Ok(join_all(requests).await);
        }
        let mut answers = Vec::with_capacity(calls.len());
        while !calls.is_empty() {
            let rest = calls.split_off(calls.len().min(BATCH_CALLS_MAX));
            answers.extend(self.batch_on(index, std::mem::replace(&mut calls, rest)).await?);
        }
        Ok(answers)
    }

    async fn batch_on(&self, index: usize, calls: Vec<Call>) -> Result<Answers, ClientError> {
        let mut batch = self.endpoints[index].new_batch();
        let mut waiters = Vec::with_capacity(calls.len());
        for (method, params) in &calls {
            let waiter = batch.add_call::<Value, Box<RawValue>>(*method, params);
            waiters.push((*method, waiter.map_err(|error| classify(method, &error))?));
        }
        let exchange = async {
            batch.send().await.map_err(|error: TransportError| classify(calls[0].0, &error))?;
            let answers = waiters
                .into_iter()
                .map(|(method, waiter)| async move { waiter.await.map_err(|error| classify(method, &error)) });
            Ok(join_all(answers).await)
        };
        tokio::time::timeout(self.timeout, exchange).await.unwrap_or(Err(ClientError::Timeout))
    }
}

/// Blocks asked for by number that an endpoint does not have: it lags, another one may not.
fn is_null_block(calls: &[Call]) -> impl Fn(&Box<RawValue>) -> bool + use<> {
    let headers = calls.iter().all(|(method, _)| *method == "eth_getBlockByNumber");
    move |raw| headers && raw.get() == "null"
}

fn parse<T: DeserializeOwned>(raw: &RawValue) -> Result<T, ClientError> {
    serde_json::from_str(raw.get()).map_err(|error| ClientError::Malformed(error.to_string()))
}
