//! Reads complete blocks: linked headers, and every transfer of the watched contracts.
//!
//! A response is trusted only as far as it can be verified. The block hash of each log must match the header. If there
//! are no logs although the header's bloom filter indicates some, they are checked against the block's receipts. The
//! same applies if a transfer to a watched wallet is missing that the bloom filter indicates, unless the filter is too
//! full to be meaningful.

use std::collections::HashSet;

use alloy::primitives::{Address as EvmAddress, U256};
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Chain, Hash32};
use payferry_evm::client::{BlockHeader, ChainClient, ClientError};
use payferry_evm::config::ChainSpec;
use payferry_evm::wallet::{alloy_address, domain_address, domain_hash};
use payferry_journal::chain::cursor::Link;

use super::found::FoundTransfer;
use super::metrics;
use super::poll::PollError;
use super::watchlist::Watchlist;

/// JSON-RPC code: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32_601;
/// Providers' messages for a method that they do not have or do not offer on the plan.
const METHOD_REFUSALS: [&str; 6] =
    ["not supported", "unsupported", "not available", "does not exist", "not found", "not allowed"];

/// Queries of one chain, prepared once.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    chain: Chain,
    contracts: Vec<EvmAddress>,
    filter: Filter,
}

/// A header as a link of the chain.
pub(super) fn link_of(header: &BlockHeader) -> Link {
    Link { number: header.number, hash: header.hash, parent_hash: header.parent_hash, time: header.time }
}

impl Reader {
    pub(super) fn new(spec: &ChainSpec) -> Self {
        let contracts: Vec<EvmAddress> = spec.watched_contracts().map(alloy_address).collect();
        let filter = Filter::new().address(contracts.clone()).event_signature(TokenContract::Transfer::SIGNATURE_HASH);
        Self { chain: spec.chain, contracts, filter }
    }

    /// Transfers in these blocks. Blocks from `recent_from` on are queried by hash, older ones as one range.
    pub(super) async fn transfers(
        &self,
        client: &ChainClient,
        watchlist: &Watchlist,
        headers: &[BlockHeader],
        recent_from: u64,
    ) -> Result<Vec<FoundTransfer>, PollError> {
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
                self.take(client, watchlist, header, of_block.to_vec(), &mut found).await?;
            }
            if !rest.is_empty() {
                return Err(PollError::Inconsistent("a log belongs to a block that was not requested"));
            }
        }
        let hashes: Vec<Hash32> = recent.iter().map(|header| header.hash).collect();
        for (header, logs) in recent.iter().zip(client.logs_by_hash(&self.filter, &hashes).await?) {
            self.take(client, watchlist, header, logs, &mut found).await?;
        }
        Ok(found)
    }

    /// Transfers in blocks that were read before, from a range query. With `elsewhere`, preferably not from the first
    /// endpoint. `links` are contiguous.
    pub(super) async fn rescan(
        &self,
        client: &ChainClient,
        links: &[Link],
        elsewhere: bool,
    ) -> Result<Vec<FoundTransfer>, PollError> {
        let ([first, .., last] | [first @ last]) = links else { return Ok(Vec::new()) };
        let range = self.filter.clone().from_block(first.number).to_block(last.number);
        let mut found = Vec::new();
        let logs = if elsewhere { client.logs_elsewhere(&range).await? } else { client.logs(&range).await? };
        for log in logs {
            let place = log.block_number.and_then(|number| number.checked_sub(first.number));
            let link = place.and_then(|place| links.get(usize::try_from(place).ok()?));
            let link = link.ok_or(PollError::Inconsistent("a log belongs to a block that was not requested"))?;
            found.extend(self.checked(link, &log)?);
        }
        Ok(found)
    }

    /// Checks the logs of one block and collects its transfers.
    async fn take(
        &self,
        client: &ChainClient,
        watchlist: &Watchlist,
        header: &BlockHeader,
        mut logs: Vec<Log>,
        found: &mut Vec<FoundTransfer>,
    ) -> Result<(), PollError> {
        let is_empty = logs.is_empty();
        if self.is_doubtful(watchlist, header, &logs) {
            match client.logs_of_receipts(header.hash).await {
                Ok(mut receipts) => {
                    receipts.retain(|log| self.is_asked_for(log));
                    let shown: HashSet<Option<u64>> = logs.iter().map(|log| log.log_index).collect();
                    let missed = receipts.iter().filter(|log| !shown.contains(&log.log_index)).count();
                    if missed > 0 {
                        tracing::warn!(chain = %self.chain, block.number = header.number, logs = missed,
                            "an endpoint omitted logs of a block");
                        metrics::LOGS_LEFT_OUT.add(&metrics::of(self.chain), missed as u64);
                        logs = receipts;
                    }
                }
                // There is no better source. The block was known, so the endpoint does not lag.
                Err(error) if is_refusal(&error) => {}
                Err(error) if is_empty => return Err(error.into()),
                // The filter may refer to a log of another contract; the rescan follows.
                Err(error) => {
                    tracing::debug!(block.number = header.number, %error, "the receipts of a block are unavailable");
                }
            }
        }
        let mut seen = HashSet::with_capacity(logs.len());
        let mut repeated = 0;
        for log in logs {
            let transfer = self.checked(&link_of(header), &log)?;
            if log.log_index.is_some_and(|index| seen.insert(index)) {
                found.extend(transfer);
            } else {
                repeated += 1;
            }
        }
        if repeated > 0 {
            tracing::warn!(chain = %self.chain, block.number = header.number, logs = repeated,
                "an endpoint returned logs more than once; duplicates are ignored");
            metrics::LOGS_REPEATED.add(&metrics::of(self.chain), repeated);
        }
        Ok(())
    }

    fn is_asked_for(&self, log: &Log) -> bool {
        self.contracts.contains(&log.address()) && log.topic0() == Some(&TokenContract::Transfer::SIGNATURE_HASH)
    }

    /// True if the block's bloom filter indicates more than these logs.
    fn is_doubtful(&self, watchlist: &Watchlist, header: &BlockHeader, logs: &[Log]) -> bool {
        if !header.may_log(&self.contracts, TokenContract::Transfer::SIGNATURE_HASH) {
            return false;
        }
        if logs.is_empty() {
            return true;
        }
        let shown: HashSet<Address> = logs.iter().filter_map(decode).map(|event| event.to).collect();
        watchlist.wallets_in(&header.bloom).iter().any(|wallet| !shown.contains(wallet))
    }

    /// Decodes a log as a transfer of this block; an error if it belongs to another block.
    fn checked(&self, block: &Link, log: &Log) -> Result<Option<FoundTransfer>, PollError> {
        if log.removed || log.block_hash.map(domain_hash) != Some(block.hash) {
            return Err(PollError::Inconsistent("a log has another block hash than its header"));
        }
        let (Some(log_index), Some(tx_hash)) = (log.log_index, log.transaction_hash) else {
            return Err(PollError::Inconsistent("a log has no index or transaction hash"));
        };
        let event = decode(log).filter(|_| self.is_asked_for(log));
        Ok(event.map(|event| FoundTransfer {
            block: *block,
            tx_hash: domain_hash(tx_hash),
            log_index,
            token_address: event.token_address,
            from: event.from,
            to: event.to,
            value: event.value,
        }))
    }
}

/// True if the endpoint does not offer the method, whatever the error code.
fn is_refusal(error: &ClientError) -> bool {
    let ClientError::Refused { code, message } = error else { return false };
    let text = message.to_lowercase();
    *code == METHOD_NOT_FOUND || METHOD_REFUSALS.iter().any(|words| text.contains(words))
}

/// Content of a `Transfer` event.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferEvent {
    pub(super) token_address: Address,
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) value: U256,
}

/// Decodes a log as a transfer; `None` for an event of the same name with another shape, such as an NFT's.
pub(super) fn decode(log: &Log) -> Option<TransferEvent> {
    let event = TokenContract::Transfer::decode_log(&log.inner).ok()?;
    Some(TransferEvent {
        token_address: domain_address(log.address()),
        from: domain_address(event.from),
        to: domain_address(event.to),
        value: event.value,
    })
}
