//! Reads blocks whole: headers that are linked, and every transfer of the watched contracts in them.
//!
//! An answer is believed only as far as it can be checked: each log's block hash against its header, an empty answer
//! against the header's bloom filter and, where that disagrees, against the block's receipts. So is an answer without a
//! transfer to a watched wallet that the bloom filter speaks of, where the filter is not too full to say anything.

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
use super::watchlist::Watchlist;

/// JSON-RPC: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32_601;
/// Providers' words for a method that they do not have, or not for everybody.
const METHOD_REFUSALS: [&str; 6] =
    ["not supported", "unsupported", "not available", "does not exist", "not found", "not allowed"];

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

    /// The transfers in these blocks. Blocks from `recent_from` on are asked for by hash, older ones as one range.
    pub(super) async fn transfers(
        &self,
        client: &ChainClient,
        watchlist: &Watchlist,
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
                self.take(client, watchlist, header, of_block.to_vec(), &mut found).await?;
            }
            if !rest.is_empty() {
                return Err(ReadError::Inconsistent("a log of a block that was not asked for"));
            }
        }
        let hashes: Vec<Hash32> = recent.iter().map(|header| header.hash).collect();
        for (header, logs) in recent.iter().zip(client.logs_by_hash(&self.filter, &hashes).await?) {
            self.take(client, watchlist, header, logs, &mut found).await?;
        }
        Ok(found)
    }

    /// The transfers in blocks that were read before, by what a range query says: `elsewhere`, from another endpoint than
    /// is asked first. `links` are gapless.
    pub(super) async fn second_look(
        &self,
        client: &ChainClient,
        links: &[Link],
        elsewhere: bool,
    ) -> Result<Vec<FoundTransfer>, ReadError> {
        let ([first, .., last] | [first @ last]) = links else { return Ok(Vec::new()) };
        let range = self.filter.clone().from_block(first.number).to_block(last.number);
        let mut found = Vec::new();
        let logs = if elsewhere { client.logs_elsewhere(&range).await? } else { client.logs(&range).await? };
        for log in logs {
            let place = log.block_number.and_then(|number| number.checked_sub(first.number));
            let link = place.and_then(|place| links.get(usize::try_from(place).ok()?));
            let link = link.ok_or(ReadError::Inconsistent("a log of a block that was not asked for"))?;
            found.extend(self.checked(link, &log)?);
        }
        Ok(found)
    }

    /// Takes over what one block logged, after checking it.
    async fn take(
        &self,
        client: &ChainClient,
        watchlist: &Watchlist,
        header: &BlockHeader,
        mut logs: Vec<Log>,
        found: &mut Vec<FoundTransfer>,
    ) -> Result<(), ReadError> {
        let is_empty = logs.is_empty();
        if self.is_doubtful(watchlist, header, &logs) {
            match client.logs_of_receipts(header.hash).await {
                Ok(mut receipts) => {
                    receipts.retain(|log| self.is_asked_for(log));
                    let shown: HashSet<Option<u64>> = logs.iter().map(|log| log.log_index).collect();
                    let missed = receipts.iter().filter(|log| !shown.contains(&log.log_index)).count();
                    if missed > 0 {
                        tracing::warn!(chain = %self.chain, block.number = header.number, logs = missed,
                            "an endpoint left a block's logs out");
                        metrics::logs_left_out(self.chain, missed);
                        logs = receipts;
                    }
                }
                // Nothing better is to be had: the block was known, so it is not a matter of lagging.
                Err(error) if is_refusal(&error) => {}
                Err(error) if is_empty => return Err(error.into()),
                // The filter may well speak of somebody else; the second look follows.
                Err(error) => {
                    tracing::debug!(block.number = header.number, %error, "a block's receipts are not to be had");
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
                "an endpoint shows logs more than once; they count once");
            metrics::logs_repeated(self.chain, repeated);
        }
        Ok(())
    }

    fn is_asked_for(&self, log: &Log) -> bool {
        self.contracts.contains(&log.address()) && log.topic0() == Some(&TokenContract::Transfer::SIGNATURE_HASH)
    }

    /// Whether the block's own filter speaks of more than these logs.
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

    /// A log as a transfer of this block; an error if it is of another one.
    fn checked(&self, block: &Link, log: &Log) -> Result<Option<FoundTransfer>, ReadError> {
        if log.removed || log.block_hash.map(domain_hash) != Some(block.hash) {
            return Err(ReadError::Inconsistent("a log of another block than its header's"));
        }
        let (Some(log_index), Some(tx_hash)) = (log.log_index, log.transaction_hash) else {
            return Err(ReadError::Inconsistent("a log without its place"));
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

/// Whether the endpoints do not have the method, whatever code they say so with.
fn is_refusal(error: &ClientError) -> bool {
    let ClientError::Refused { code, message } = error else { return false };
    let text = message.to_lowercase();
    *code == METHOD_NOT_FOUND || METHOD_REFUSALS.iter().any(|words| text.contains(words))
}

/// What a `Transfer` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferEvent {
    pub(super) token_address: Address,
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) value: U256,
}

/// A log as a transfer; `None` for an event of the same name with another shape (an NFT's).
pub(super) fn decode(log: &Log) -> Option<TransferEvent> {
    let event = TokenContract::Transfer::decode_log(&log.inner).ok()?;
    Some(TransferEvent {
        token_address: domain_address(log.address()),
        from: domain_address(event.from),
        to: domain_address(event.to),
        value: event.value,
    })
}
