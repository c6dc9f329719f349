//! The bare read of live payments' rows: the same database, the same pages, and nobody who makes anything of them.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};

use crate::sandbox::database_file;

/// Rows of a page, as a shard reads them when it starts.
const PAGE: usize = 1_000;
/// Parts of the 256 logical shards; they are read side by side, as far as there are connections.
const PARTS: i64 = 8;
const SHARDS_OF_PART: i64 = 256 / PARTS;
const LIVE: &str = "SELECT id, version, state FROM payments WHERE live AND id > $1 AND shard >= $2 AND shard <= $3 \
    ORDER BY id LIMIT $4";

/// What was read.
#[derive(Debug, Default)]
pub(super) struct LiveRows {
    pub(super) count: usize,
    /// Of the payments' states, as they are kept.
    pub(super) state_bytes: usize,
    pub(super) took: Duration,
}

/// Reads all of them in the SQLite file of a sandbox's folder, whether or not a sandbox runs there.
pub(super) async fn read_live(folder: &Path) -> anyhow::Result<LiveRows> {
    let database = Database::open(&format!("sqlite://{}?mode=rw", database_file(folder).display())).await?;
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
