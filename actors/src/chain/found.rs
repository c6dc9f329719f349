//! Transfers found in blocks: looks up their payments and verifies them.
//!
//! A log is only one endpoint's claim. Before a transfer is recorded, its transaction's receipt is requested, from
//! another endpoint if there is one. A log that the receipt does not have is dropped and reported.

use std::collections::{HashMap, HashSet};

use alloy::primitives::U256;
use alloy::rpc::types::Log;
use payferry_domain::{Address, Hash32, PaymentId, Timestamp};
use payferry_entities::{Database, transfers};
use payferry_evm::client::{ChainClient, ClientError};
use payferry_evm::config::ChainSpec;
use payferry_evm::wallet::domain_hash;
use payferry_journal::chain::cursor::Link;
use payferry_journal::chain::rows;
use payferry_journal::payments::{self, StoreError, WalletScope};
use payferry_runtime::clock::Clock;
use sea_orm::{ColumnTrait, DbBackend, EntityTrait, QueryFilter};

use super::metrics;
use super::poll::PollError;
use super::reader::{Reader, decode};
use super::watcher::WatcherArgs;
use super::watchlist::Watchlist;

/// Maximum number of transactions per database lookup.
const LOOKUP_HASHES_MAX: usize = 500;
/// Lookup rounds while wallets are being removed continuously, before live payments are looked up in the database too.
const LOOKUP_ROUNDS_MAX: u32 = 4;

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

/// Dependencies of a lookup.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub spec: &'a ChainSpec,
    pub client: &'a ChainClient,
    pub database: &'a Database,
    pub watchlist: &'a Watchlist,
    pub clock: &'a Clock,
}

impl WatcherArgs {
    pub(super) fn lookup(&self) -> Lookup<'_> {
        let Self { spec, client, database, watchlist, clock, .. } = self;
        Lookup { spec, client, database, watchlist, clock }
    }
}

/// Rows of transfers to payments' wallets.
pub(super) async fn of_payments(args: Lookup<'_>, found: &[FoundTransfer]) -> Result<Vec<transfers::Model>, PollError> {
    let mut addresses: Vec<Address> = found.iter().map(|transfer| transfer.to).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let owners = owners(args.database, args.watchlist, addresses).await?;
    let ours = found.iter().filter_map(|transfer| Some((transfer, *owners.get(&transfer.to)?)));
    Ok(ours.filter_map(|(transfer, payment_id)| row(args, transfer, payment_id)).collect())
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

fn row(args: Lookup<'_>, transfer: &FoundTransfer, payment_id: PaymentId) -> Option<transfers::Model> {
    let chain = args.spec.chain;
    if transfer.value.is_zero() {
        // Anyone can emit any number of these; they have no meaning.
        tracing::debug!(%chain, payment.id = %payment_id, "a transfer of amount zero is ignored");
        return None;
    }
    let Ok(amount) = i64::try_from(transfer.value) else {
        tracing::warn!(%chain, payment.id = %payment_id, tx.hash = %transfer.tx_hash,
            "a transfer above the maximum amount is ignored");
        return None;
    };
    Some(transfers::Model {
        chain: chain.as_str().to_owned(),
        tx_hash: transfer.tx_hash.to_string(),
        log_index: rows::row_number(transfer.log_index),
        payment_id: payment_id.to_string(),
        token_address: transfer.token_address.to_string(),
        from_address: transfer.from.to_string(),
        to_address: transfer.to.to_string(),
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
    let rows = of_payments(args, &found).await?;
    made(args, unrecorded(args, rows).await?).await
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
    }
    let is_new =
        |row: &transfers::Model| !recorded.contains(&(row.tx_hash.clone(), row.log_index, row.block_hash.clone()));
    Ok(rows.into_iter().filter(is_new).collect())
}

/// The rows that a transaction really emitted, in the block that they name.
pub(super) async fn made(args: Lookup<'_>, rows: Vec<transfers::Model>) -> Result<Vec<transfers::Model>, PollError> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let mut hashes: Vec<Hash32> = rows.iter().filter_map(|row| row.tx_hash.parse().ok()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let receipts = args.client.receipts_elsewhere(&hashes).await?;
    let receipts: HashMap<String, _> =
        hashes.iter().map(Hash32::to_string).zip(receipts).filter_map(|(hash, found)| Some((hash, found?))).collect();
    let mut blocks: HashMap<String, Vec<Log>> = HashMap::new();
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        let receipt = receipts.get(&row.tx_hash).filter(|receipt| {
            receipt.block_hash.map(|hash| domain_hash(hash).to_string()).as_ref() == Some(&row.block_hash)
        });
        let is_made = if let Some(receipt) = receipt {
            receipt.status() && receipt.inner.logs().iter().any(|log| is_log_of(log, &row))
        } else {
            // No receipt, or one of another branch: the node lags, or the transaction was invented. The block's
            // receipts decide.
            if !blocks.contains_key(&row.block_hash) {
                let block =
                    row.block_hash.parse().map_err(|_| PollError::Inconsistent("a transfer row has no block hash"))?;
                let logs = args.client.logs_of_receipts(block).await.map_err(|error| match error {
                    ClientError::Refused { .. } => PollError::Inconsistent("a transfer has no receipt"),
                    error => error.into(),
                })?;
                blocks.insert(row.block_hash.clone(), logs);
            }
            blocks.get(&row.block_hash).is_some_and(|logs| logs.iter().any(|log| is_log_of(log, &row)))
        };
        if is_made {
            kept.push(row);
        } else {
            tracing::error!(chain = %args.spec.chain, payment.id = row.payment_id, tx.hash = row.tx_hash,
                block.number = row.block_number,
                "an endpoint of {} reported a transfer that its transaction did not emit; ignored", args.spec.chain);
            metrics::LOGS_FORGED.add(&metrics::of(args.spec.chain), 1);
        }
    }
    Ok(kept)
}

fn is_log_of(log: &Log, row: &transfers::Model) -> bool {
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
mod tests;

#[cfg(test)]
mod lookups {
    use std::cell::RefCell;
    use std::convert::Infallible;
    use std::time::Instant;

    use super::*;

    const WALLET: Address = Address([1; 20]);

    /// Looks up `WALLET` in a database with these responses per call; returns the payment and the queries.
    async fn looked_up(
        watchlist: &Watchlist,
        answer: impl Fn(usize) -> Vec<(Address, PaymentId)>,
    ) -> (Option<PaymentId>, Vec<WalletScope>) {
        let asked = RefCell::new(Vec::new());
        let look_up = |unknown_addresses: Vec<Address>, among| {
            assert_eq!(unknown_addresses, [WALLET]);
            asked.borrow_mut().push(among);
            let call = asked.borrow().len();
            std::future::ready(Ok::<_, Infallible>(answer(call)))
        };
        let Ok(owners) = owners_by(watchlist, watchlist.is_whole(), vec![WALLET], look_up).await;
        (owners.get(&WALLET).copied(), asked.into_inner())
    }

    fn take_out(watchlist: &Watchlist, wallet: Address) {
        watchlist.retire(wallet);
        watchlist.unwatch(&watchlist.retired(Instant::now(), 1), &HashSet::new());
    }

    fn whole() -> Watchlist {
        let watchlist = Watchlist::new();
        watchlist.set_whole();
        watchlist
    }

    #[tokio::test]
    async fn live_payments_are_queried_in_the_database_until_all_are_watched() {
        let id = PaymentId::generate();
        assert_eq!(looked_up(&Watchlist::new(), |_| vec![(WALLET, id)]).await, (Some(id), vec![WalletScope::All]));
        assert_eq!(looked_up(&whole(), |_| vec![(WALLET, id)]).await, (Some(id), vec![WalletScope::Over]));
        assert_eq!(looked_up(&whole(), |_| Vec::new()).await, (None, vec![WalletScope::Over]));
        let watching = whole();
        watching.watch(WALLET, id);
        assert_eq!(looked_up(&watching, |_| Vec::new()).await, (Some(id), Vec::new()));
    }

    #[tokio::test]
    async fn finds_a_payment_that_becomes_live_during_the_lookup() {
        let (watchlist, id) = (whole(), PaymentId::generate());
        let becomes_live = |_| {
            watchlist.watch(WALLET, id);
            Vec::new()
        };
        assert_eq!(looked_up(&watchlist, becomes_live).await, (Some(id), vec![WalletScope::Over]));
    }

    #[tokio::test]
    async fn finds_a_payment_that_was_live_for_a_moment() {
        let (watchlist, id) = (whole(), PaymentId::generate());
        let is_over_again = |call| {
            if call > 1 {
                return vec![(WALLET, id)];
            }
            watchlist.watch(WALLET, id);
            take_out(&watchlist, WALLET);
            Vec::new()
        };
        assert_eq!(looked_up(&watchlist, is_over_again).await, (Some(id), vec![WalletScope::Over; 2]));
    }

    #[tokio::test]
    async fn continuous_removals_end_in_a_lookup_of_all_payments() {
        let watchlist = whole();
        let others_are_over = |_| {
            take_out(&watchlist, Address([2; 20]));
            Vec::new()
        };
        let (found, asked) = looked_up(&watchlist, others_are_over).await;
        assert_eq!((found, asked.len()), (None, LOOKUP_ROUNDS_MAX as usize));
        assert_eq!(asked.iter().filter(|among| **among == WalletScope::All).count(), 1);
    }
}
