//! Reads blocks whole: headers that are linked, and every transfer of the watched contracts in them.
//!
//! An answer is believed only as far as it can be checked: each log's block hash against its header, an empty answer
//! against the header's bloom filter and, where that disagrees, against the block's receipts.

use std::collections::HashSet;

use alloy::primitives::{Address as EvmAddress, B256, U256};
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Hash32};

use super::client::{BlockHeader, ChainClient, ClientError};
use super::config::ChainSpec;
use super::cursor::Link;
use crate::wallet::{alloy_address, domain_address, domain_hash};

/// JSON-RPC: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32_601;

/// One `Transfer` of a watched contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundTransfer {
    pub block: Link,
    pub tx_hash: Hash32,
    pub log_index: u64,
    pub token_address: Address,
    pub from: Address,
    pub to: Address,
    pub value: U256,
}

/// Why a range was not read whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the endpoint's answers do not fit together: {0}")]
    Inconsistent(&'static str),
}

/// What is asked for on one chain, prepared once.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    contracts: Vec<EvmAddress>,
    filter: Filter,
}

impl Link {
    pub(super) fn of(header: &BlockHeader) -> Self {
        Self { number: header.number, hash: header.hash, parent_hash: header.parent_hash, time: header.time }
    }
}

impl Reader {
    pub(super) fn new(spec: &ChainSpec) -> Self {
        let contracts: Vec<EvmAddress> = spec.watched_contracts().map(alloy_address).collect();
        let filter = Filter::new().address(contracts.clone()).event_signature(TokenContract::Transfer::SIGNATURE_HASH);
        Self { contracts, filter }
    }

    /// The transfers in these blocks. Blocks from `recent_from` on are asked for by hash, older ones as one range.
    pub(super) async fn transfers(
        &self,
        client: &ChainClient,
        headers: &[BlockHeader],
        recent_from: u64,
    ) -> Result<Vec<FoundTransfer>, ReadError> {
        let split = headers.partition_point(|header| header.number < recent_from);
        let (old, recent) = headers.split_at(split);
        let mut found = Vec::new();
        if let [first, .., last] | [first @ last] = old {
            let range = self.filter.clone().from_block(first.number).to_block(last.number);
            let mut logs = client.logs(&range).await?;
            logs.sort_by_key(|log| (log.block_number, log.log_index));
            let mut rest = logs.as_slice();
            for header in old {
                let mine = rest.partition_point(|log| log.block_number.is_some_and(|number| number <= header.number));
                let (of_block, later) = rest.split_at(mine);
                rest = later;
                self.take(client, header, of_block.to_vec(), &mut found).await?;
            }
            if !rest.is_empty() {
                return Err(ReadError::Inconsistent("a log of a block that was not asked for"));
            }
        }
        let hashes: Vec<Hash32> = recent.iter().map(|header| header.hash).collect();
        for (header, logs) in recent.iter().zip(client.logs_by_hash(&self.filter, &hashes).await?) {
            self.take(client, header, logs, &mut found).await?;
        }
        Ok(found)
    }

    /// Takes over what one block logged, after checking it.
    async fn take(
        &self,
        client: &ChainClient,
        header: &BlockHeader,
        mut logs: Vec<Log>,
        found: &mut Vec<FoundTransfer>,
    ) -> Result<(), ReadError> {
        let topic = TokenContract::Transfer::SIGNATURE_HASH;
        if logs.is_empty() {
            if !header.may_log(&self.contracts, topic) {
                return Ok(());
            }
            logs = match client.logs_of_receipts(header.hash).await {
                Ok(logs) => logs,
                // Nothing better is to be had: the block was known, so it is not a matter of lagging.
                Err(ClientError::Refused { code: METHOD_NOT_FOUND, .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            logs.retain(|log| self.contracts.contains(&log.address()) && log.topic0() == Some(&topic));
            if !logs.is_empty() {
                tracing::warn!(block.number = header.number, logs = logs.len(), "the endpoint left a block's logs out");
            }
        }
        let mut seen = HashSet::with_capacity(logs.len());
        for log in logs {
            if log.removed || log.block_hash.map(domain_hash) != Some(header.hash) {
                return Err(ReadError::Inconsistent("a log of another block than its header's"));
            }
            let (Some(index), Some(tx_hash)) = (log.log_index, log.transaction_hash) else {
                return Err(ReadError::Inconsistent("a log without its place"));
            };
            if seen.insert(index) && self.contracts.contains(&log.address()) {
                found.extend(decode(Link::of(header), index, tx_hash, &log));
            }
        }
        Ok(())
    }
}

/// A log as a transfer; `None` for an event of the same name with another shape (an NFT's).
fn decode(block: Link, log_index: u64, tx_hash: B256, log: &Log) -> Option<FoundTransfer> {
    let event = TokenContract::Transfer::decode_log(&log.inner).ok()?;
    Some(FoundTransfer {
        block,
        tx_hash: domain_hash(tx_hash),
        log_index,
        token_address: domain_address(log.address()),
        from: domain_address(event.from),
        to: domain_address(event.to),
        value: event.value,
    })
}
