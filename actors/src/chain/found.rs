//! What a look at the chain found: whose transfers they are, and whether they really were made.
//!
//! A log is an endpoint's word. Before money is recorded, the receipt of its transaction is asked for, from another
//! endpoint where there is one; a log that the receipt does not have is left out and said so.

use std::collections::{HashMap, HashSet};

use alloy::primitives::U256;
use alloy::rpc::types::Log;
use payferry_domain::{Address, Hash32, PaymentId};
use payferry_entities::{Database, transfers};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::client::{ChainClient, ClientError};
use super::config::ChainSpec;
use super::cursor::Link;
use super::metrics;
use super::poll::PollError;
use super::reader::decode;
use super::rows;
use super::watcher::WatcherArgs;
use super::watchlist::Watchlist;
use crate::clock::Clock;
use crate::payment::store::{self, StoreError};
use crate::wallet::domain_hash;

/// Most transactions looked up in the database with one statement.
const LOOKUP_HASHES_MAX: usize = 500;

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

/// Where what was found is looked up.
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

/// The rows of transfers that went to payments' wallets.
pub(super) async fn of_payments(args: Lookup<'_>, found: &[FoundTransfer]) -> Result<Vec<transfers::Model>, PollError> {
    let mut strangers: Vec<Address> = Vec::new();
    let mut owners: HashMap<Address, PaymentId> = HashMap::new();
    for transfer in found {
        match args.watchlist.payment_of(transfer.to) {
            Some(payment_id) => {
                owners.insert(transfer.to, payment_id);
            }
            None => strangers.push(transfer.to),
        }
    }
    strangers.sort_unstable();
    strangers.dedup();
    strangers.retain(|address| !owners.contains_key(address));
    if !strangers.is_empty() {
        owners.extend(store::by_wallets(args.database, &strangers).await?);
    }
    let ours = found.iter().filter_map(|transfer| Some((transfer, *owners.get(&transfer.to)?)));
    Ok(ours.filter_map(|(transfer, payment_id)| row(args, transfer, payment_id)).collect())
}

fn row(args: Lookup<'_>, transfer: &FoundTransfer, payment_id: PaymentId) -> Option<transfers::Model> {
    let chain = args.spec.chain;
    if transfer.value.is_zero() {
        // Anybody can log any number of these; they never mean anything.
        tracing::debug!(%chain, payment.id = %payment_id, "a transfer of nothing is left out");
        return None;
    }
    let Ok(amount) = i64::try_from(transfer.value) else {
        tracing::warn!(%chain, payment.id = %payment_id, tx.hash = %transfer.tx_hash,
            "a transfer of more than can be counted is left out");
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
        created_at: args.clock.now().as_millis(),
    })
}

/// Those of these rows that are not recorded as they are.
pub(super) async fn unrecorded(
    args: Lookup<'_>,
    rows: Vec<transfers::Model>,
) -> Result<Vec<transfers::Model>, PollError> {
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

/// Those of these rows that a transaction really made, in the block that they name.
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
            // No receipt, or one of another branch: the node lags, or the transaction was made up. The block says.
            if !blocks.contains_key(&row.block_hash) {
                let block = row.block_hash.parse().map_err(|_| PollError::Inconsistent("a block without a hash"))?;
                let logs = args.client.logs_of_receipts(block).await.map_err(|error| match error {
                    ClientError::Refused { .. } => PollError::Inconsistent("a transfer without its receipt"),
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
                "an endpoint of {} shows a transfer that its transaction did not make; it is left out", args.spec.chain);
            metrics::logs_forged(args.spec.chain, 1);
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
