//! RPC client of a chain: typed calls over one or more endpoints, with timeouts, failover and errors that name the
//! remedy.
//!
//! Deliberately absent:
//!
//! - waiting and retries: the callers know how long they can wait;
//! - alloy's fallback layer: it returns the first response, even from a lagging endpoint;
//! - endpoint addresses in errors: they contain API keys.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Bytes, U64, U256};
use alloy::rpc::client::RpcClient;
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::IntoBoxTransport;
use payferry_domain::{Address, Chain, Hash32};
use serde_json::json;

use super::endpoint::{Answers, Call, Endpoint};
pub use super::endpoint::{BATCH_CALLS_MAX, EndpointProblem};
use super::failover::{no_endpoint, parse};
use super::http;
use super::wire::FeeHistory;
pub use super::wire::{BlockHeader, ClientError};
use crate::prefix::Prefix;
use crate::wallet::alloy_hash;

/// Maximum duration of a request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of blocks that a fee suggestion is based on.
const FEE_HISTORY_BLOCKS: u64 = 5;

/// RPC endpoints of one chain, in order of preference. Clones share the endpoints and their health. An endpoint that
/// fails, lags or is slow moves behind the others, and is probed again later.
#[derive(Clone, Debug)]
pub struct ChainClient {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    pub(super) expected: Option<(Chain, u64)>,
    pub(super) timeout: Duration,
    pub(super) batches: bool,
}

/// Blocks read in one poll, all from one endpoint.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The newest block.
    pub latest: BlockHeader,
    /// The newest `safe` block, if requested and known.
    pub safe: Option<BlockHeader>,
    /// The newest `finalized` block, if requested and known.
    pub finalized: Option<BlockHeader>,
    /// The block at the cursor's number.
    pub at_cursor: Option<BlockHeader>,
}

/// Current fees on the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeMarket {
    /// Base fee of the next block, wei per gas.
    pub base_fee_wei: u128,
    /// Median priority fee of recent blocks, wei per gas.
    pub priority_fee_wei: u128,
}

impl ChainClient {
    /// Creates a client over one transport, for example that of an in-process chain.
    pub fn new(transport: impl IntoBoxTransport) -> Self {
        Self::over(RpcClient::new(transport, true))
    }

    /// Creates a client over HTTP. The process must have installed a rustls provider before the first `https` request.
    pub fn http(url: url::Url) -> Result<Self, ClientError> {
        Self::http_all([url], REQUEST_TIMEOUT, true)
    }

    /// Creates a client over several HTTP endpoints of one chain, in order of preference. `timeout` applies to each
    /// request; `batches` says if the endpoints support JSON-RPC batches.
    pub fn http_all(
        urls: impl IntoIterator<Item = url::Url>,
        timeout: Duration,
        batches: bool,
    ) -> Result<Self, ClientError> {
        let client =
            http::client().map_err(|_| ClientError::Unavailable("the HTTP client could not be built".to_owned()))?;
        let endpoint = |url| Arc::new(Endpoint::new(RpcClient::new(http::transport(client.clone(), url), false)));
        Ok(Self { endpoints: urls.into_iter().map(endpoint).collect(), expected: None, timeout, batches })
    }

    fn over(client: RpcClient) -> Self {
        let endpoints = vec![Arc::new(Endpoint::new(client))];
        Self { endpoints, expected: None, timeout: REQUEST_TIMEOUT, batches: true }
    }

    /// Requires the endpoints to serve this chain. Each request also asks for the chain id; an endpoint that reports
    /// another one is not used until it reports the expected one.
    #[must_use]
    pub fn of_chain(mut self, chain: Chain, chain_id: u64) -> Self {
        self.expected = Some((chain, chain_id));
        self
    }

    /// Appends the endpoints of `other`.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.endpoints.extend(other.endpoints);
        self
    }

    /// Replaces the default timeout, [`REQUEST_TIMEOUT`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Number of endpoints.
    pub fn endpoints_len(&self) -> usize {
        self.endpoints.len()
    }

    /// Problems of the endpoints, by their index.
    pub fn problems(&self) -> Vec<EndpointProblem> {
        let newest = self.endpoints.iter().filter_map(|endpoint| endpoint.head()).max();
        self.endpoints.iter().enumerate().filter_map(|(index, endpoint)| endpoint.problem(index, newest)).collect()
    }

    /// Returns the EIP-155 chain id.
    pub async fn chain_id(&self) -> Result<u64, ClientError> {
        self.ask::<U64>("eth_chainId", json!([])).await.map(|id| id.to())
    }

    /// True if there is code at the address.
    pub async fn has_code(&self, address: Address) -> Result<bool, ClientError> {
        Ok(!self.code(address).await?.is_empty())
    }

    /// Code at the address as of the newest block; empty for a plain account.
    pub async fn code(&self, address: Address) -> Result<Bytes, ClientError> {
        self.ask("eth_getCode", json!([address, "latest"])).await
    }

    /// Balance of the native coin, in wei.
    pub async fn balance_wei(&self, address: Address) -> Result<U256, ClientError> {
        self.ask("eth_getBalance", json!([address, "latest"])).await
    }

    /// Runs `eth_call` on the newest block.
    pub async fn call(&self, to: Address, input: Vec<u8>) -> Result<Bytes, ClientError> {
        self.ask("eth_call", json!([{"to": to, "data": Bytes::from(input)}, "latest"])).await
    }

    /// Runs `eth_call` on the newest block from this account, with this gas limit.
    pub async fn call_from(
        &self,
        from: Address,
        to: Address,
        input: Vec<u8>,
        gas_limit: u64,
    ) -> Result<Bytes, ClientError> {
        let call = json!({"from": from, "to": to, "data": Bytes::from(input), "gas": U64::from(gas_limit)});
        self.ask("eth_call", json!([call, "latest"])).await
    }

    /// Runs several calls on the newest block; each has its own result.
    pub async fn calls(&self, calls: Vec<(Address, Vec<u8>)>) -> Result<Answers<Bytes>, ClientError> {
        self.calls_on(json!("latest"), calls).await
    }

    /// Runs several calls on the state after `block`, which a lagging endpoint does not have; each has its own result.
    pub async fn calls_at(&self, block: u64, calls: Vec<(Address, Vec<u8>)>) -> Result<Answers<Bytes>, ClientError> {
        self.calls_on(json!(U64::from(block)), calls).await
    }

    /// Runs several calls on the newest block from this account, each with this gas limit and its own result.
    pub async fn calls_from(
        &self,
        from: Address,
        gas_limit: u64,
        calls: Vec<(Address, Vec<u8>)>,
    ) -> Result<Answers<Bytes>, ClientError> {
        let call = |(to, input): (Address, Vec<u8>)| {
            let call = json!({"from": from, "to": to, "data": Bytes::from(input), "gas": U64::from(gas_limit)});
            ("eth_call", json!([call, "latest"]))
        };
        self.ask_each(calls.into_iter().map(call)).await
    }

    async fn calls_on(
        &self,
        block: serde_json::Value,
        calls: Vec<(Address, Vec<u8>)>,
    ) -> Result<Answers<Bytes>, ClientError> {
        let call =
            |(to, input): (Address, Vec<u8>)| ("eth_call", json!([{"to": to, "data": Bytes::from(input)}, block]));
        self.ask_each(calls.into_iter().map(call)).await
    }

    /// Estimates the gas of a call from this account.
    pub async fn estimate_gas(&self, from: Address, to: Address, input: Vec<u8>) -> Result<u64, ClientError> {
        let call = json!([{"from": from, "to": to, "data": Bytes::from(input)}]);
        self.ask::<U64>("eth_estimateGas", call).await.map(|gas| gas.to())
    }

    /// Next nonce of the account at the block tag `block` (`latest`, `finalized`).
    pub async fn nonce(&self, account: Address, block: &str) -> Result<u64, ClientError> {
        self.ask::<U64>("eth_getTransactionCount", json!([account, block])).await.map(|nonce| nonce.to())
    }

    /// Highest next nonce that any endpoint reports for the account at its newest block.
    pub async fn nonce_anywhere(&self, account: Address) -> Result<u64, ClientError> {
        let mut highest: Result<u64, ClientError> = Err(no_endpoint());
        for index in self.order() {
            let answer = self.one_on(index, "eth_getTransactionCount", json!([account, "latest"])).await;
            match answer.and_then(|raw| parse::<U64>(&raw)) {
                Ok(nonce) => highest = Ok(highest.unwrap_or_default().max(nonce.to())),
                Err(error) => highest = highest.or(Err(error)),
            }
        }
        highest
    }

    /// Reads the newest block, `safe` and `finalized` (if requested), and the block at `cursor`, all from one endpoint.
    /// An endpoint with a head below `floor` is skipped if another one is at or above it; otherwise the endpoint with
    /// the highest head is used.
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
        let mut behind = Vec::new();
        let mut last_error = ClientError::UnknownBlock;
        for index in self.order() {
            match self.heads_of(index, calls.clone(), has_safe, has_finalized, cursor.is_some()).await {
                Ok(heads) => {
                    self.endpoints[index].reported(heads.latest.number);
                    let enough = heads.latest.number >= floor;
                    if !enough {
                        behind.push((index, heads.latest.number));
                    }
                    if best.as_ref().is_none_or(|best| best.latest.number < heads.latest.number) {
                        best = Some(heads);
                    }
                    if enough {
                        break;
                    }
                }
                Err(error) => {
                    if error == ClientError::UnknownBlock {
                        self.endpoints[index].lags(&self.scope(index));
                    }
                    last_error = error;
                }
            }
        }
        let best = best.ok_or(last_error)?;
        // The next calls concern blocks that the lagging endpoints do not have.
        for (index, number) in behind {
            if number < best.latest.number {
                self.endpoints[index].lags(&self.scope(index));
            }
        }
        Ok(best)
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
            parse(&raw)
        };
        let latest = next(true)?.ok_or(ClientError::UnknownBlock)?;
        // A young chain has no safe or finalized block yet; endpoints report that as an error.
        let mut tag = |asked| match next(asked) {
            Err(ClientError::UnknownBlock) => Ok(None),
            answer => answer,
        };
        let (safe, finalized) = (tag(has_safe)?, tag(has_finalized)?);
        Ok(Heads { latest, safe, finalized, at_cursor: next(has_cursor)? })
    }

    /// Headers of these blocks. An unknown block is an error.
    pub async fn headers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<BlockHeader>, ClientError> {
        let headers = self.headers_prefix(numbers).await?;
        headers.error.map_or(Ok(headers.items), Err)
    }

    /// Headers of these blocks, up to the first one that cannot be read or is unknown.
    pub async fn headers_prefix(
        &self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<Prefix<BlockHeader, ClientError>, ClientError> {
        let headers = self.headers_each(numbers).await?.into_iter();
        Prefix::of(headers.map(|header| header?.ok_or(ClientError::UnknownBlock)))
    }

    /// Headers of these blocks; unknown blocks are left out.
    pub async fn known_headers(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<BlockHeader>, ClientError> {
        self.headers_each(numbers).await?.into_iter().filter_map(Result::transpose).collect()
    }

    async fn headers_each(
        &self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<Answers<Option<BlockHeader>>, ClientError> {
        self.ask_each(numbers.into_iter().map(|number| ("eth_getBlockByNumber", json!([U64::from(number), false]))))
            .await
    }

    /// Logs in a range of blocks.
    pub async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, ClientError> {
        self.ask("eth_getLogs", json!([filter])).await
    }

    /// Logs in a range of blocks, preferably not from the first endpoint.
    pub async fn logs_elsewhere(&self, filter: &Filter) -> Result<Vec<Log>, ClientError> {
        let mut last_error = no_endpoint();
        for index in self.order_elsewhere() {
            match self.one_on(index, "eth_getLogs", json!([filter])).await.and_then(|raw| parse(&raw)) {
                Ok(logs) => return Ok(logs),
                Err(error @ ClientError::RangeTooLarge(_)) => return Err(error),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Logs of blocks given by hash, in that order; each has its own result. A block that the node does not know is an
    /// error.
    pub async fn logs_by_hash(&self, filter: &Filter, blocks: &[Hash32]) -> Result<Answers<Vec<Log>>, ClientError> {
        let call = |hash: &Hash32| ("eth_getLogs", json!([filter.clone().at_block_hash(alloy_hash(*hash))]));
        self.ask_each(blocks.iter().map(call)).await
    }

    /// All logs of a block, taken from its receipts. Expensive; used only if the result of `eth_getLogs` is doubtful.
    pub async fn logs_of_receipts(&self, block: Hash32) -> Result<Vec<Log>, ClientError> {
        let receipts: Option<Vec<TransactionReceipt>> = self.ask("eth_getBlockReceipts", json!([block])).await?;
        let receipts = receipts.ok_or(ClientError::UnknownBlock)?;
        Ok(receipts.into_iter().flat_map(|receipt| receipt.inner.logs().to_vec()).collect())
    }

    /// Receipts by transaction hash, in that order; `None` for unmined transactions.
    pub async fn receipts(&self, hashes: &[Hash32]) -> Result<Vec<Option<TransactionReceipt>>, ClientError> {
        self.receipts_each(hashes).await?.into_iter().collect()
    }

    /// Receipts by transaction hash, in that order; `None` for unmined transactions. Each has its own result.
    pub async fn receipts_each(&self, hashes: &[Hash32]) -> Result<Answers<Option<TransactionReceipt>>, ClientError> {
        self.ask_each(hashes.iter().map(|hash| ("eth_getTransactionReceipt", json!([hash])))).await
    }

    /// Receipts by transaction hash, in that order, preferably not from the first endpoint. Each has its own result:
    /// `None` if no endpoint has the receipt and at least one endpoint responded.
    pub async fn receipts_elsewhere(&self, hashes: &[Hash32]) -> Answers<Option<TransactionReceipt>> {
        let mut found: Answers<Option<TransactionReceipt>> = vec![Err(no_endpoint()); hashes.len()];
        for index in self.order_elsewhere() {
            let missing: Vec<usize> = (0..hashes.len()).filter(|place| !matches!(found[*place], Ok(Some(_)))).collect();
            if missing.is_empty() {
                break;
            }
            let call = |place: &usize| ("eth_getTransactionReceipt", json!([hashes[*place]]));
            let answers = self.many_on(index, missing.iter().map(call).collect()).await;
            let answers = answers.unwrap_or_else(|error| vec![Err(error); missing.len()]);
            for (place, answer) in missing.into_iter().zip(answers) {
                match answer.and_then(|raw| parse(&raw)) {
                    Err(error) if found[place].is_err() => found[place] = Err(error),
                    Err(_) => {}
                    Ok(answer) => found[place] = Ok(answer),
                }
            }
        }
        found
    }

    /// Base fee of the next block, and the median priority fee of the last blocks.
    pub async fn fee_market(&self) -> Result<FeeMarket, ClientError> {
        let blocks = U64::from(FEE_HISTORY_BLOCKS);
        let history: FeeHistory = self.ask("eth_feeHistory", json!([blocks, "latest", [50.0]])).await?;
        history.market().ok_or_else(|| ClientError::Malformed("the fee history is empty".to_owned()))
    }
}
