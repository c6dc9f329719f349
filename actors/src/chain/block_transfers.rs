//! Transfers in blocks: reads complete blocks, looks up the payments of the transfers, and verifies them.
//!
//! A response is trusted only as far as it can be verified. The block hash of each log must match the header. If there
//! are no logs although the header's bloom filter indicates some, they are checked against the block's receipts. The
//! same applies if a transfer to a watched wallet is missing that the bloom filter indicates, unless the filter is too
//! full to be meaningful.
//!
//! A log is only one endpoint's claim. Before a transfer is recorded, its transaction's receipt is requested, from
//! another endpoint if there is one. A log that the receipt does not have is dropped and reported.

use std::collections::{HashMap, HashSet};

use alloy::primitives::{Address as EvmAddress, U256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::SolEvent;
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Chain, Hash32, PaymentId, Timestamp};
use payferry_entities::{Database, deposits, transfers};
use payferry_evm::Prefix;
use payferry_evm::client::{BlockHeader, ChainClient, ClientError};
use payferry_evm::config::ChainSpec;
use payferry_evm::wallet::{alloy_address, domain_address, domain_hash};
use payferry_journal::chain::cursor::Link;
use payferry_journal::chain::rows;
use payferry_journal::payments::{self, StoreError, WalletScope};
use payferry_runtime::clock::Clock;
use sea_orm::{ColumnTrait, DbBackend, EntityTrait, QueryFilter};

use super::deposits::of_psps;
use super::poll::PollError;
use super::watchlist::Watchlist;
use super::{ChainContext, metrics};

/// Maximum number of transactions per database lookup.
const LOOKUP_HASHES_MAX: usize = 500;
/// Lookup rounds while wallets are being removed continuously, before live payments are looked up in the database too.
const LOOKUP_ROUNDS_MAX: u32 = 4;
/// JSON-RPC code: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32_601;
/// Providers' messages for a method that they do not have or do not offer on the plan.
const METHOD_REFUSALS: [&str; 6] =
    ["not supported", "unsupported", "not available", "does not exist", "not found", "not allowed"];

/// Content of a `Transfer` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferEvent {
    token_address: Address,
    pub(super) from: Address,
    pub(super) to: Address,
    value: U256,
}

/// One `Transfer` of a watched contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundTransfer {
    block: Link,
    pub(super) tx_hash: Hash32,
    log_index: u64,
    pub(super) event: TransferEvent,
}

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

    /// Transfers in each of these blocks, up to the first block that cannot be read. Blocks from `recent_from` on are
    /// queried by hash, older ones as one range.
    pub(super) async fn transfers(
        &self,
        client: &ChainClient,
        watchlist: &Watchlist,
        headers: &[BlockHeader],
        recent_from: u64,
    ) -> Result<Prefix<Vec<FoundTransfer>, PollError>, PollError> {
        let split = headers.partition_point(|header| header.number < recent_from);
        let (old, recent) = headers.split_at(split);
        let mut logs_each: Vec<Result<Vec<Log>, ClientError>> = Vec::with_capacity(headers.len());
        if let [first, .., last] | [first @ last] = old {
            let range = self.filter.clone().from_block(first.number).to_block(last.number);
            let mut logs = client.logs(&range).await?;
            logs.sort_by_key(|log| (log.block_number, log.log_index));
            let mut rest = logs.as_slice();
            for header in old {
                let mine = rest.partition_point(|log| log.block_number.is_some_and(|number| number <= header.number));
                let (of_block, later) = rest.split_at(mine);
                rest = later;
                logs_each.push(Ok(of_block.to_vec()));
            }
            if !rest.is_empty() {
                return Err(PollError::Inconsistent("a log belongs to a block that was not requested"));
            }
        }
        let hashes: Vec<Hash32> = recent.iter().map(|header| header.hash).collect();
        match client.logs_by_hash(&self.filter, &hashes).await {
            Ok(logs) => logs_each.extend(logs),
            Err(error) => logs_each.push(Err(error)),
        }
        let mut results = Vec::with_capacity(headers.len());
        for (header, logs) in headers.iter().zip(logs_each) {
            let result = match logs {
                Ok(logs) => self.take(client, watchlist, header, logs).await,
                Err(error) => Err(error.into()),
            };
            let is_last = result.is_err();
            results.push(result);
            if is_last {
                break;
            }
        }
        Prefix::of(results)
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
    ) -> Result<Vec<FoundTransfer>, PollError> {
        let mut found = Vec::new();
        let is_empty = logs.is_empty();
        if self.is_doubtful(watchlist, header, &logs) {
            match client.logs_of_receipts(header.hash).await {
                Ok(mut receipts) => {
                    receipts.retain(|log| self.is_requested(log));
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
        Ok(found)
    }

    fn is_requested(&self, log: &Log) -> bool {
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
        let event = decode(log).filter(|_| self.is_requested(log));
        Ok(event.map(|event| FoundTransfer { block: *block, tx_hash: domain_hash(tx_hash), log_index, event }))
    }
}

/// True if the endpoint does not offer the method, whatever the error code.
fn is_refusal(error: &ClientError) -> bool {
    let ClientError::Refused { code, message } = error else { return false };
    let text = message.to_lowercase();
    *code == METHOD_NOT_FOUND || METHOD_REFUSALS.iter().any(|words| text.contains(words))
}

/// Decodes a log as a transfer; `None` for an event of the same name with another shape, such as an NFT's.
fn decode(log: &Log) -> Option<TransferEvent> {
    let event = TokenContract::Transfer::decode_log(&log.inner).ok()?;
    Some(TransferEvent {
        token_address: domain_address(log.address()),
        from: domain_address(event.from),
        to: domain_address(event.to),
        value: event.value,
    })
}

/// Dependencies of a lookup.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub spec: &'a ChainSpec,
    pub client: &'a ChainClient,
    pub database: &'a Database,
    pub watchlist: &'a Watchlist,
    pub clock: &'a Clock,
}

impl ChainContext {
    pub(super) fn lookup(&self) -> Lookup<'_> {
        let Self { spec, client, database, watchlist, clock, .. } = self;
        Lookup { spec, client, database, watchlist, clock }
    }
}

/// Rows of transfers to payments' wallets and, from outside, to vaults of PSPs (`deposits::split`), in block order.
pub(super) async fn received(args: Lookup<'_>, found: &[FoundTransfer]) -> Result<Vec<transfers::Model>, PollError> {
    let mut addresses: Vec<Address> = found.iter().map(|transfer| transfer.event.to).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let owners = owners(args.database, args.watchlist, addresses).await?;
    let ours = found.iter().filter_map(|transfer| Some((transfer, *owners.get(&transfer.event.to)?)));
    let mut rows: Vec<_> = ours.filter_map(|(transfer, id)| row(args, transfer, id.to_string())).collect();
    let deposits = of_psps(args, found).await?;
    rows.extend(deposits.into_iter().filter_map(|(transfer, id)| row(args, transfer, id.to_string())));
    rows.sort_by_key(|row| (row.block_number, row.log_index));
    Ok(rows)
}

/// Payments of these wallets. Wallets of live payments are in the watchlist, once it is complete; the others are in the
/// database.
///
/// A payment that becomes live or ends in the meantime could be missed in both places. A payment that became live is
/// watched from before its commit, so addresses missing in the database are looked up in the watchlist again. If
/// wallets were removed since, which is rare, the whole lookup is repeated.
pub(crate) async fn owners(
    database: &Database,
    watchlist: &Watchlist,
    addresses: Vec<Address>,
) -> Result<HashMap<Address, PaymentId>, StoreError> {
    let look_up = |unknown_addresses: Vec<Address>, among| async move {
        payments::by_wallets(database, &unknown_addresses, among).await
    };
    // PostgreSQL has one index of all wallets.
    let is_whole = watchlist.is_whole() && database.backend() == DbBackend::Sqlite;
    owners_by(watchlist, is_whole, addresses, look_up).await
}

async fn owners_by<E, F: Future<Output = Result<Vec<(Address, PaymentId)>, E>>>(
    watchlist: &Watchlist,
    is_whole: bool,
    addresses: Vec<Address>,
    look_up: impl Fn(Vec<Address>, WalletScope) -> F,
) -> Result<HashMap<Address, PaymentId>, E> {
    let mut owners = HashMap::new();
    let mut unknown_addresses = addresses;
    for round in 1.. {
        let unwatched = watchlist.unwatched();
        take_watched(watchlist, &mut unknown_addresses, &mut owners);
        if unknown_addresses.is_empty() {
            break;
        }
        let is_last = round >= LOOKUP_ROUNDS_MAX || !is_whole;
        let among = if is_last { WalletScope::All } else { WalletScope::Over };
        owners.extend(look_up(unknown_addresses.clone(), among).await?);
        unknown_addresses.retain(|address| !owners.contains_key(address));
        take_watched(watchlist, &mut unknown_addresses, &mut owners);
        if is_last || watchlist.unwatched() == unwatched {
            break;
        }
    }
    Ok(owners)
}

/// Moves watched addresses from `unknown_addresses` to `owners`.
fn take_watched(watchlist: &Watchlist, unknown_addresses: &mut Vec<Address>, owners: &mut HashMap<Address, PaymentId>) {
    unknown_addresses.retain(|address| match watchlist.payment_of(*address) {
        Some(payment_id) => {
            owners.insert(*address, payment_id);
            false
        }
        None => true,
    });
}

/// Row of a transfer to this payment or PSP.
fn row(args: Lookup<'_>, transfer: &FoundTransfer, owner_id: String) -> Option<transfers::Model> {
    let chain = args.spec.chain;
    if transfer.event.value.is_zero() {
        // Anyone can emit any number of these; they have no meaning.
        tracing::debug!(%chain, owner.id = owner_id, "a transfer of amount zero is ignored");
        return None;
    }
    let Ok(amount) = i64::try_from(transfer.event.value) else {
        tracing::warn!(%chain, owner.id = owner_id, tx.hash = %transfer.tx_hash,
            "a transfer above the maximum amount is ignored");
        return None;
    };
    Some(transfers::Model {
        chain: chain.as_str().to_owned(),
        tx_hash: transfer.tx_hash.to_string(),
        log_index: rows::row_number(transfer.log_index),
        payment_id: owner_id,
        token_address: transfer.event.token_address.to_string(),
        from_address: transfer.event.from.to_string(),
        to_address: transfer.event.to.to_string(),
        amount,
        block_number: rows::row_number(transfer.block.number),
        block_hash: transfer.block.hash.to_string(),
        block_time: transfer.block.time.as_millis(),
        presence: "present".to_owned(),
        revision: 1,
        applied_revision: 0,
        applied_version: 0,
        created_at: args.clock.now::<Timestamp>().as_millis(),
    })
}

/// Rows of transfers in blocks that were read before and that are not recorded as they are. See [`Reader::rescan`].
pub(super) async fn missing(
    args: Lookup<'_>,
    reader: &Reader,
    links: &[Link],
    elsewhere: bool,
) -> Result<Vec<transfers::Model>, PollError> {
    let found = reader.rescan(args.client, links, elsewhere).await?;
    let rows = received(args, &found).await?;
    let made = made(args, unrecorded(args, rows).await?).await;
    made.failed.map_or(Ok(made.rows), |(_, error)| Err(error))
}

/// The rows that are not recorded as they are.
async fn unrecorded(args: Lookup<'_>, rows: Vec<transfers::Model>) -> Result<Vec<transfers::Model>, PollError> {
    let hashes: Vec<&str> = rows.iter().map(|row| row.tx_hash.as_str()).collect();
    let mut recorded = HashSet::new();
    for hashes in hashes.chunks(LOOKUP_HASHES_MAX) {
        let known = transfers::Entity::find()
            .filter(transfers::Column::Chain.eq(args.spec.chain.as_str()))
            .filter(transfers::Column::TxHash.is_in(hashes.iter().copied()))
            .filter(transfers::Column::Presence.eq("present"))
            .all(args.database.reader())
            .await
            .map_err(StoreError::from)?;
        recorded.extend(known.into_iter().map(|row| (row.tx_hash, row.log_index, row.block_hash)));
        let known = deposits::Entity::find()
            .filter(deposits::Column::Chain.eq(args.spec.chain.as_str()))
            .filter(deposits::Column::TxHash.is_in(hashes.iter().copied()))
            .all(args.database.reader())
            .await
            .map_err(StoreError::from)?;
        recorded.extend(known.into_iter().map(|row| (row.tx_hash, row.log_index, row.block_hash)));
    }
    let is_new =
        |row: &transfers::Model| !recorded.contains(&(row.tx_hash.clone(), row.log_index, row.block_hash.clone()));
    Ok(rows.into_iter().filter(is_new).collect())
}

/// Transfers that were verified.
pub(super) struct Made {
    /// Rows of the blocks before the failed one.
    pub(super) rows: Vec<transfers::Model>,
    /// The first block with a transfer that could not be verified, and the error.
    pub(super) failed: Option<(u64, PollError)>,
}

/// The rows that a transaction really emitted, in the block that they name. The rows are in block order.
pub(super) async fn made(args: Lookup<'_>, rows: Vec<transfers::Model>) -> Made {
    if rows.is_empty() {
        return Made { rows, failed: None };
    }
    let mut hashes: Vec<Hash32> = rows.iter().filter_map(|row| row.tx_hash.parse().ok()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let receipts = args.client.receipts_elsewhere(&hashes).await;
    let receipts: HashMap<String, _> = hashes.iter().map(Hash32::to_string).zip(receipts).collect();
    let mut blocks: HashMap<String, Vec<Log>> = HashMap::new();
    let mut kept: Vec<transfers::Model> = Vec::with_capacity(rows.len());
    for row in rows {
        let is_made = match receipts.get(&row.tx_hash) {
            Some(Err(error)) => Err(error.clone().into()),
            Some(Ok(receipt)) => is_made(args, &row, receipt.as_ref(), &mut blocks).await,
            None => Err(PollError::Inconsistent("a transfer row has no transaction hash")),
        };
        let is_made = match is_made {
            Ok(is_made) => is_made,
            Err(error) => {
                let block = row.block_number;
                kept.retain(|kept| kept.block_number < block);
                return Made { rows: kept, failed: Some((u64::try_from(block).unwrap_or(0), error)) };
            }
        };
        if is_made {
            kept.push(row);
        } else {
            tracing::error!(chain = %args.spec.chain, owner.id = row.payment_id, tx.hash = row.tx_hash,
                block.number = row.block_number,
                "an endpoint of {} reported a transfer that its transaction did not emit; ignored", args.spec.chain);
            metrics::LOGS_FORGED.add(&metrics::of(args.spec.chain), 1);
        }
    }
    Made { rows: kept, failed: None }
}

/// True if the transaction of the row emitted it. `blocks` caches the logs of blocks.
async fn is_made(
    args: Lookup<'_>,
    row: &transfers::Model,
    receipt: Option<&TransactionReceipt>,
    blocks: &mut HashMap<String, Vec<Log>>,
) -> Result<bool, PollError> {
    let is_of_block = |receipt: &&TransactionReceipt| {
        receipt.block_hash.map(|hash| domain_hash(hash).to_string()).as_ref() == Some(&row.block_hash)
    };
    if let Some(receipt) = receipt.filter(is_of_block) {
        return Ok(receipt.status() && receipt.inner.logs().iter().any(|log| is_log_of(log, row)));
    }
    // No receipt, or one of another branch: the node lags, or the transaction was invented. The block's receipts decide.
    if !blocks.contains_key(&row.block_hash) {
        let block = row.block_hash.parse().map_err(|_| PollError::Inconsistent("a transfer row has no block hash"))?;
        let logs = args.client.logs_of_receipts(block).await.map_err(|error| match error {
            ClientError::Refused { .. } => PollError::Inconsistent("a transfer has no receipt"),
            error => error.into(),
        })?;
        blocks.insert(row.block_hash.clone(), logs);
    }
    Ok(blocks.get(&row.block_hash).is_some_and(|logs| logs.iter().any(|log| is_log_of(log, row))))
}

/// True if the log is the transfer of the row.
pub(super) fn is_log_of(log: &Log, row: &transfers::Model) -> bool {
    let place = log.log_index.map(rows::row_number) == Some(row.log_index)
        && log.transaction_hash.map(|hash| domain_hash(hash).to_string()).as_ref() == Some(&row.tx_hash);
    let said = decode(log).map(|event| {
        let amount = i64::try_from(event.value).ok();
        (event.token_address.to_string(), event.from.to_string(), event.to.to_string(), amount)
    });
    let (token, from, to) = (row.token_address.clone(), row.from_address.clone(), row.to_address.clone());
    place && said == Some((token, from, to, Some(row.amount)))
}

#[cfg(test)]
mod lookups;
#[cfg(test)]
mod tests;
