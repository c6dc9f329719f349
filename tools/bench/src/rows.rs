//! Bare read of the rows of live payments: the same database and the same pages as the service reads, without actors.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};

/// Rows of a page, as a shard reads them at its start.
const PAGE: usize = 1_000;
/// Parts of the 256 logical shards. They are read concurrently, as far as there are connections.
const PARTS: i64 = 8;
const SHARDS_OF_PART: i64 = 256 / PARTS;
const LIVE: &str = "SELECT id, version, state FROM payments WHERE live AND id > $1 AND shard >= $2 AND shard <= $3 \
    ORDER BY id LIMIT $4";

/// Result of a read.
#[derive(Debug, Default)]
pub(super) struct LiveRows {
    pub(super) count: usize,
    /// Size of the stored states.
    pub(super) state_bytes: usize,
    pub(super) took: Duration,
}

/// Reads all rows of live payments in a SQLite file, whether a service runs on it or not.
pub(super) async fn read_live(file: &Path) -> anyhow::Result<LiveRows> {
    let database = Database::open(&format!("sqlite://{}?mode=rw", file.display())).await?;
    let since = Instant::now();
    let parts = try_join_all((0..PARTS).map(|part| read_part(&database, part))).await?;
    let took = since.elapsed();
    database.close().await?;
    let (count, state_bytes) = parts.into_iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    Ok(LiveRows { count, state_bytes, took })
}

async fn read_part(database: &Database, part: i64) -> anyhow::Result<(usize, usize)> {
    let (mut count, mut bytes, mut after) = (0, 0, String::new());
    loop {
        let first = part * SHARDS_OF_PART;
        let values =
            [after.clone().into(), first.into(), (first + SHARDS_OF_PART - 1).into(), i64::try_from(PAGE)?.into()];
        let page = Statement::from_sql_and_values(database.backend(), LIVE, values);
        let rows = database.reader().query_all_raw(page).await?;
        for row in &rows {
            let _version: i64 = row.try_get_by_index(1)?;
            bytes += row.try_get_by_index::<String>(2)?.len();
        }
        count += rows.len();
        match rows.last() {
            Some(last) => after = last.try_get_by_index(0)?,
            None => return Ok((count, bytes)),
        }
    }
}
