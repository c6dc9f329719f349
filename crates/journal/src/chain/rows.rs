//! Conversion between rows and domain facts, and the watcher's queries.

use std::collections::HashMap;

use crate::lists::{text_list, texts_of};
use payferry_domain::payment::{BlockRef, ObservedTransfer, Presence, TransferKey};
use payferry_domain::{Address, Amount, Chain, Hash32, PaymentId, Timestamp, Token};
use payferry_entities::{Database, chain_cursors, chain_headers, chain_outages, query_all, transfers};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder};

use super::cursor::{Gap, Known, Link};

/// Maximum number of values per statement.
const LOOKUP_ADDRESSES_MAX: usize = 5_000;

/// Error: a row has a value that this program does not write.
#[derive(Debug, thiserror::Error)]
#[error("a row of {table} cannot be read: {what}")]
pub struct BadRow {
    table: &'static str,
    what: String,
}

fn bad(what: impl std::fmt::Display) -> BadRow {
    BadRow { table: "transfers", what: what.to_string() }
}

/// The fact in a row, and the payment that it concerns.
pub fn observed(
    chain: Chain,
    token_at: impl Fn(Address) -> Option<Token>,
    row: &transfers::Model,
    first_block_time: Option<Timestamp>,
) -> Result<(PaymentId, ObservedTransfer), BadRow> {
    let token_address: Address = row.token_address.parse().map_err(bad)?;
    let fact = ObservedTransfer {
        key: TransferKey {
            chain,
            block_hash: row.block_hash.parse().map_err(bad)?,
            tx_hash: row.tx_hash.parse().map_err(bad)?,
            log_index: u32::try_from(row.log_index).map_err(bad)?,
        },
        revision: u32::try_from(row.revision).map_err(bad)?,
        block: BlockRef { number: u64::try_from(row.block_number).map_err(bad)?, time: Timestamp(row.block_time) },
        first_block_time,
        from: row.from_address.parse().map_err(bad)?,
        token_address,
        token: token_at(token_address),
        amount: Amount::from_units(row.amount),
        presence: if row.presence == "present" { Presence::Present } else { Presence::Orphaned },
    };
    Ok((row.payment_id.parse().map_err(bad)?, fact))
}

/// Facts in rows of one chain, orphaned transfers first, then the oldest block first, with the payments that they concern.
pub async fn facts(
    database: &Database,
    chain: Chain,
    token_at: impl Fn(Address) -> Option<Token>,
    rows: &[transfers::Model],
) -> Result<Vec<(PaymentId, ObservedTransfer)>, LoadError> {
    let times = first_block_times(database, chain, rows).await?;
    let first = |row: &transfers::Model| times.get(&(row.tx_hash.clone(), row.payment_id.clone())).copied();
    let mut facts =
        rows.iter().map(|row| observed(chain, &token_at, row, first(row))).collect::<Result<Vec<_>, _>>()?;
    facts.sort_by_key(|(_, fact)| (fact.presence == Presence::Present, fact.block.number, fact.key.log_index));
    Ok(facts)
}

/// Remembered blocks, and the first block that is not rescanned. The cursor's own row is authoritative for the newest
/// block.
pub async fn load_known(database: &Database, chain: Chain) -> Result<(Known, u64), LoadError> {
    let cursor = chain_cursors::Entity::find_by_id(chain.as_str()).one(database.reader()).await?;
    let Some(cursor) = cursor else { return Ok((Known::default(), 0)) };
    let rows = chain_headers::Entity::find()
        .filter(chain_headers::Column::Chain.eq(chain.as_str()))
        .filter(chain_headers::Column::Number.lte(cursor.block_number))
        .order_by_asc(chain_headers::Column::Number)
        .all(database.reader())
        .await?;
    let mut links = rows.iter().map(header_link).collect::<Result<Vec<_>, _>>()?;
    let (number, hash) = (block_number(cursor.block_number)?, cursor.block_hash.parse().map_err(bad)?);
    if links.last().is_none_or(|last| (last.number, last.hash) != (number, hash)) {
        let time = Timestamp(cursor.block_time);
        links = vec![Link { number, hash, parent_hash: Hash32([0; 32]), time }];
    }
    Ok((Known::from_links(links), block_number(cursor.second_look_from)?))
}

/// Error of a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Error of the database.
    #[error("database: {0}")]
    Database(#[from] DbErr),
    /// A row that this program cannot have written.
    #[error(transparent)]
    BadRow(#[from] BadRow),
}

fn block_number(number: i64) -> Result<u64, BadRow> {
    u64::try_from(number).map_err(bad)
}

fn header_link(row: &chain_headers::Model) -> Result<Link, BadRow> {
    Ok(Link {
        number: block_number(row.number)?,
        hash: row.hash.parse().map_err(bad)?,
        parent_hash: row.parent_hash.parse().map_err(bad)?,
        time: Timestamp(row.time),
    })
}

/// Row of `chain_headers` for a block.
pub fn header_row(chain: Chain, link: &Link) -> chain_headers::Model {
    chain_headers::Model {
        chain: chain.as_str().to_owned(),
        number: row_number(link.number),
        hash: link.hash.to_string(),
        parent_hash: link.parent_hash.to_string(),
        time: link.time.as_millis(),
    }
}

/// Row of `chain_outages` for a gap.
pub fn outage_row(chain: Chain, gap: &Gap) -> chain_outages::Model {
    chain_outages::Model {
        chain: chain.as_str().to_owned(),
        block_number: row_number(gap.block),
        began_at: gap.from.as_millis(),
        ended_at: gap.to.as_millis(),
    }
}

/// The recorded outages of a chain, oldest first.
pub async fn load_outages(database: &Database, chain: Chain) -> Result<Vec<Gap>, LoadError> {
    let rows = chain_outages::Entity::find()
        .filter(chain_outages::Column::Chain.eq(chain.as_str()))
        .order_by_asc(chain_outages::Column::BlockNumber)
        .all(database.reader())
        .await?;
    let gap = |row: chain_outages::Model| {
        let (from, to) = (Timestamp(row.began_at), Timestamp(row.ended_at));
        Ok(Gap { block: block_number(row.block_number)?, from, to })
    };
    rows.into_iter().map(gap).collect()
}

/// Cursor row for a block. `epoch` is that of the writer's lease.
pub fn cursor_row(
    chain: Chain,
    link: &Link,
    second_look_from: u64,
    epoch: i64,
    now: Timestamp,
) -> chain_cursors::Model {
    chain_cursors::Model {
        chain: chain.as_str().to_owned(),
        block_number: row_number(link.number),
        block_hash: link.hash.to_string(),
        block_time: link.time.as_millis(),
        second_look_from: row_number(second_look_from),
        epoch,
        updated_at: now.as_millis(),
    }
}

/// Column value of a block number or log index.
pub fn row_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Earliest block time of any row per transaction and payment. A transfer that was mined again elsewhere keeps the time
/// of its first block.
pub async fn first_block_times(
    database: &Database,
    chain: Chain,
    rows: &[transfers::Model],
) -> Result<HashMap<(String, String), Timestamp>, DbErr> {
    let sql = format!(
        "SELECT tx_hash, payment_id, MIN(block_time) FROM transfers WHERE chain = $1 AND tx_hash IN ({}) \
         GROUP BY tx_hash, payment_id",
        texts_of(database.backend(), 2)
    );
    let hashes: Vec<&str> = rows.iter().map(|row| row.tx_hash.as_str()).collect();
    let mut times = HashMap::new();
    for hashes in hashes.chunks(LOOKUP_ADDRESSES_MAX) {
        let values = [chain.as_str().into(), text_list(hashes)?];
        for row in query_all(database.reader(), &sql, values).await? {
            let key = (row.try_get_by_index(0)?, row.try_get_by_index(1)?);
            times.insert(key, Timestamp(row.try_get_by_index(2)?));
        }
    }
    Ok(times)
}
