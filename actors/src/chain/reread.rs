//! Reads blocks again that the operator names, and records missing transfers to payments' wallets and missing deposits.
//! The watcher of a running service finds the transfers in its sweep and notifies the payments, and posts the deposits, as
//! usual.
//!
//! Unlike the rescan, it needs no watcher and no remembered blocks: receipts verify its findings. It reads only final
//! blocks, because nothing would revert a transfer that it recorded from a block that the watcher has just orphaned.
//! Deliberately absent: reverting anything. A transfer that is recorded differently from the chain is reported and left
//! alone.

use std::fmt::Display;

use payferry_entities::{Database, chain_cursors, deposits as deposits_table, transfers};
use payferry_evm::client::{ChainClient, ClientError};
use payferry_evm::config::ChainSpec;
use payferry_evm::pace::backoff;
use payferry_journal::chain::cursor::Link;
use payferry_runtime::clock::Clock;
use sea_orm::{ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, TryInsertResult};

use super::block_transfers::{self, Lookup, Reader, link_of};
use super::deposits;
use super::poll::PollError;
use super::watchlist::Watchlist;

/// Consecutive failures of the endpoints after which the reread ends.
pub(super) const FAILURES_MAX: u32 = 4;

/// Error of a reread.
#[derive(Debug, thiserror::Error)]
pub enum RereadError {
    /// An endpoint or the database failed.
    #[error("{0}")]
    Failed(String),
    /// The watcher has not read these blocks yet.
    #[error("the watcher has read up to block {0} only; it reads later blocks by itself")]
    Unread(u64),
    /// These blocks may still be orphaned.
    #[error("only blocks up to {0} are final; later blocks may still be orphaned and are left to the watcher")]
    NotFinal(u64),
    /// All blocks may still be orphaned.
    #[error("no block of this chain is final yet; non-final blocks are left to the watcher")]
    NothingFinal,
    /// There is no cursor yet.
    #[error("the watcher has not read any block of this chain yet")]
    NeverRead,
}

pub(super) fn failed(error: impl Display) -> RereadError {
    RereadError::Failed(error.to_string())
}

/// Result of a reread.
#[derive(Debug, Default)]
pub struct RereadResult {
    /// Number of blocks read.
    pub blocks: u64,
    /// Missing transfers and deposits that are now recorded; `payment_id` of a deposit is the PSP's id.
    pub recorded: Vec<transfers::Model>,
    /// Transfers that the chain has here, but that are recorded in another block or as orphaned.
    pub otherwise: Vec<transfers::Model>,
}

/// Reads the blocks from `from` to `to` again, all of them final. `watch` is called with the last block read so far.
pub async fn reread(
    spec: &ChainSpec,
    client: &ChainClient,
    database: &Database,
    clock: &Clock,
    (from, to): (u64, u64),
    mut watch: impl FnMut(u64),
) -> Result<RereadResult, RereadError> {
    let (read, last_final) = last_blocks(spec, client, database).await?;
    if to > read {
        return Err(RereadError::Unread(read));
    }
    let last_final = last_final.ok_or(RereadError::NothingFinal)?;
    if to > last_final {
        return Err(RereadError::NotFinal(last_final));
    }
    let (reader, watchlist) = (Reader::new(spec), Watchlist::default());
    let lookup = Lookup { spec, client, database, watchlist: &watchlist, clock };
    lookup.read_psp_vaults().await.map_err(failed)?;
    let mut reread = RereadResult::default();
    let mut step = spec.range_blocks_max.max(1);
    let mut failures = 0;
    let mut next = from;
    while next <= to {
        let last = to.min(next + step - 1);
        match missing(&reader, lookup, next, last).await {
            Ok(rows) => {
                for row in rows {
                    record(database, row, &mut reread).await?;
                }
                reread.blocks += last - next + 1;
                watch(last);
                failures = 0;
                next = last + 1;
            }
            Err(PollError::Client(ClientError::RangeTooLarge(_))) if last > next => step = (last - next).div_ceil(2),
            Err(PollError::Client(_) | PollError::Inconsistent(_)) if failures < FAILURES_MAX => {
                step = (last - next).div_ceil(2).max(1);
                tokio::time::sleep(backoff(failures)).await;
                failures += 1;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(reread)
}

/// The last block that the watcher has read, and the last final one of them; by depth where the endpoints do not report
/// finality.
pub(super) async fn last_blocks(
    spec: &ChainSpec,
    client: &ChainClient,
    database: &Database,
) -> Result<(u64, Option<u64>), RereadError> {
    let cursor = chain_cursors::Entity::find_by_id(spec.chain.as_str()).one(database.reader()).await.map_err(failed)?;
    let read = u64::try_from(cursor.ok_or(RereadError::NeverRead)?.block_number).unwrap_or(0);
    if !spec.has_finalized {
        return Ok((read, read.checked_sub(spec.fallback_depth_blocks)));
    }
    let heads = client.heads(false, true, None, 0).await.map_err(failed)?;
    Ok((read, heads.finalized.map(|finalized| finalized.number.min(read))))
}

async fn missing(reader: &Reader, lookup: Lookup<'_>, from: u64, to: u64) -> Result<Vec<transfers::Model>, PollError> {
    let links: Vec<Link> = lookup.client.headers(from..=to).await?.iter().map(link_of).collect();
    block_transfers::missing(lookup, reader, &links, false).await
}

async fn record(database: &Database, row: transfers::Model, reread: &mut RereadResult) -> Result<(), RereadError> {
    let is_new = !is_elsewhere(database, &row).await.map_err(failed)? && {
        let (transfers, deposits) = deposits::split(vec![row.clone()]);
        inserted(database, transfers).await? + inserted(database, deposits).await? > 0
    };
    if is_new {
        reread.recorded.push(row);
    } else {
        reread.otherwise.push(row);
    }
    Ok(())
}

/// True if the transaction is recorded in another block.
async fn is_elsewhere(database: &Database, row: &transfers::Model) -> Result<bool, DbErr> {
    let transfers = transfers::Entity::find()
        .filter(transfers::Column::Chain.eq(&row.chain))
        .filter(transfers::Column::TxHash.eq(&row.tx_hash))
        .filter(transfers::Column::BlockHash.ne(&row.block_hash))
        .filter(transfers::Column::Presence.eq("present"));
    let deposits = deposits_table::Entity::find()
        .filter(deposits_table::Column::Chain.eq(&row.chain))
        .filter(deposits_table::Column::TxHash.eq(&row.tx_hash))
        .filter(deposits_table::Column::BlockHash.ne(&row.block_hash));
    let reader = database.reader();
    Ok(transfers.one(reader).await?.is_some() || deposits.one(reader).await?.is_some())
}

/// Inserts rows that do not exist; returns their number.
async fn inserted<M, A>(database: &Database, rows: Vec<M>) -> Result<u64, RereadError>
where
    M: IntoActiveModel<A>,
    A: ActiveModelTrait,
{
    if rows.is_empty() {
        return Ok(0);
    }
    let rows = rows.into_iter().map(IntoActiveModel::into_active_model);
    let insert = A::Entity::insert_many(rows).on_conflict_do_nothing();
    match insert.exec_without_returning(database.writer()).await.map_err(failed)? {
        TryInsertResult::Inserted(count) => Ok(count),
        TryInsertResult::Conflicted | TryInsertResult::Empty => Ok(0),
    }
}
