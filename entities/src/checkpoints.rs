//! Checkpoints of SQLite's write-ahead log (WAL) beside the writer, so that no commit has to wait for them.
//!
//! Without this, the commit that makes the log long enough moves all of it. Here a separate connection moves a few
//! pages at a time while commits continue, and syncs them to disk. The writer is blocked only when the log is long, and
//! then only for the pages added in the meantime: the log restarts only when all of it is moved, and each such pause
//! delays all commits.
//!
//! This is best effort. If it cannot run (a full disk, a long reader, a process that ends), the writer's own limit in
//! SQLite applies, and SQLite itself syncs everything it needs, before and after.

use std::fs::{File, OpenOptions};
use std::time::Duration;

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr};
use tokio::task::JoinHandle;

use crate::database::sqlite_file;

/// Pages moved per step, while commits continue (8 MiB). Most commits change the same index pages again, so a larger
/// step writes fewer pages twice, but others then wait longer for the processor or the disk.
pub const SQLITE_CHECKPOINT_PAGES: i64 = 2_048;
/// Number of pages from which the log is restarted (128 MiB). A log of this size adds a third of a second to a start
/// after a kill.
pub const SQLITE_LOG_PAGES: i64 = 32_768;
/// Number of pages from which the writer itself moves the log in its commit (256 MiB).
pub const SQLITE_LOG_PAGES_MAX: i64 = 65_536;

/// Interval between checks of the log size.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of pages that are moved while the writer is blocked (2 MiB).
const REST_PAGES_MAX: i64 = 512;
/// Maximum number of passes over new pages before the writer is blocked, however many remain.
const PASSES_MAX: u32 = 4;
/// Time to wait for readers that still use the log while the writer is blocked.
pub(crate) const READERS_PATIENCE: Duration = Duration::from_millis(20);
/// Delay after a checkpoint that failed or was blocked by a reader.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs checkpoints until it is dropped.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    task: JoinHandle<()>,
    pool: DatabaseConnection,
}

impl Checkpoints {
    /// Starts the task. `own` is the connection for checkpoints, `writer` the pool of the write connection.
    pub(crate) fn start(own: DatabaseConnection, writer: DatabaseConnection) -> Self {
        let pool = own.clone();
        Self { task: tokio::spawn(watch(own, writer)), pool }
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> DatabaseConnection {
        self.pool.clone()
    }

    /// Stops the task and closes its connection.
    pub(crate) async fn close(&self) -> Result<(), DbErr> {
        self.task.abort();
        self.pool.clone().close().await
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(own: DatabaseConnection, writer: DatabaseConnection) {
    let file = file_of(&own).await.unwrap_or_default();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        // A failed step is retried. A full disk is reported by writes.
        if !matches!(look(&own, &writer, file).await, Ok(true)) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Opens the database file for syncing; `None` for an in-memory database.
///
/// It is never closed: a process that closes any descriptor of a file releases all its POSIX locks on the file,
/// including those of SQLite's connections.
async fn file_of(connection: &DatabaseConnection) -> Result<Option<&'static File>, DbErr> {
    let Some(path) = sqlite_file(connection).await? else { return Ok(None) };
    // Without the file everything still works, but slower.
    let file = OpenOptions::new().read(true).write(true).open(path).ok();
    Ok(file.map(|file| &*Box::leak(Box::new(file))))
}

/// Moves pages, and restarts the log if it is long. Returns `false` if a reader was in the way.
async fn look(
    own: &DatabaseConnection,
    writer: &DatabaseConnection,
    file: Option<&'static File>,
) -> Result<bool, DbErr> {
    let log = checkpoint(own, "NOOP").await?;
    if log.pages < SQLITE_LOG_PAGES {
        // While a reader is active, pages written after it started are not moved.
        return Ok(log.rest() < SQLITE_CHECKPOINT_PAGES || move_pages(own, file).await?.moved > log.moved);
    }
    if log.rest() == 0 {
        // The next commit restarts the log by itself.
        return Ok(true);
    }
    for _ in 0..PASSES_MAX {
        move_pages(own, file).await?;
        if checkpoint(own, "NOOP").await?.rest() <= REST_PAGES_MAX {
            break;
        }
    }
    // Other writers now wait in the queue of the pool, not for SQLite's lock, which is not fair.
    let _writer =
        writer.get_sqlite_connection_pool().acquire().await.map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(!checkpoint(own, "RESTART").await?.is_busy)
}

/// Moves the current pages of the log beside the writer, syncs them to disk, and returns the progress.
async fn move_pages(own: &DatabaseConnection, file: Option<&'static File>) -> Result<Log, DbErr> {
    let log = checkpoint(own, "PASSIVE").await?;
    if let Some(file) = file {
        // Errors are ignored: SQLite syncs again before the log restarts, and reports them.
        let _ = tokio::task::spawn_blocking(move || file.sync_data()).await;
    }
    Ok(log)
}

/// Result of a checkpoint.
struct Log {
    is_busy: bool,
    pages: i64,
    moved: i64,
}

impl Log {
    fn rest(&self) -> i64 {
        self.pages - self.moved
    }
}

async fn checkpoint(connection: &DatabaseConnection, mode: &str) -> Result<Log, DbErr> {
    let row = connection
        .query_one_raw(sea_orm::Statement::from_string(
            sea_orm::DbBackend::Sqlite,
            format!("PRAGMA wal_checkpoint({mode})"),
        ))
        .await?
        .ok_or_else(|| DbErr::RecordNotFound("the result of a checkpoint".to_owned()))?;
    let number = |column: usize| row.try_get_by_index::<i64>(column);
    Ok(Log { is_busy: number(0)? != 0, pages: number(1)?, moved: number(2)? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Database;

    const PAGE: u64 = 4_096;

    async fn open(folder: &Path) -> Database {
        let database =
            Database::open(&format!("sqlite://{}?mode=rwc", folder.join("test.db").display())).await.unwrap();
        database.writer().execute_unprepared("CREATE TABLE things (id INTEGER PRIMARY KEY, bytes BLOB)").await.unwrap();
        database
    }

    /// Begins a transaction. Retries while a slow disk delays the writer beyond its time limit.
    async fn begin(database: &Database) -> crate::Transaction {
        let since = std::time::Instant::now();
        loop {
            match database.begin().await {
                Ok(transaction) => return transaction,
                Err(error) => assert!(since.elapsed() < Duration::from_mins(1), "{error}"),
            }
        }
    }

    /// Writes about this many pages, a few per commit.
    async fn write(database: &Database, pages: i64) {
        for _ in 0..pages / 128 {
            let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 128) \
                INSERT INTO things (bytes) SELECT randomblob(3900) FROM n";
            let transaction = begin(database).await;
            transaction.execute_unprepared(rows).await.unwrap();
            transaction.commit().await.unwrap();
        }
    }

    fn log_bytes(folder: &Path) -> u64 {
        std::fs::metadata(folder.join("test.db-wal")).map_or(0, |found| found.len())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_log_stays_bounded_during_many_writes() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path()).await;
        let (writes, pages) = (2 * SQLITE_LOG_PAGES / SQLITE_CHECKPOINT_PAGES, SQLITE_CHECKPOINT_PAGES);
        for _ in 0..writes {
            write(&database, pages).await;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let bytes = log_bytes(folder.path());
        let most = (SQLITE_LOG_PAGES * 3 / 2).unsigned_abs() * (PAGE + 24);
        assert!(bytes > 0 && bytes < most, "{bytes} bytes");
        let rows = database
            .reader()
            .query_one_raw(sea_orm::Statement::from_string(sea_orm::DbBackend::Sqlite, "SELECT COUNT(*) FROM things"));
        let rows: i64 = rows.await.unwrap().unwrap().try_get_by_index(0).unwrap();
        assert_eq!(rows, writes * pages);
        database.close().await.unwrap();
        assert_eq!(log_bytes(folder.path()), 0, "closing the last connection deletes the log");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pages_pinned_by_a_reader_are_moved_after_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path()).await;
        let snapshot = database.snapshot().await.unwrap();
        write(&database, 2 * SQLITE_CHECKPOINT_PAGES).await;
        let (own, writer) = (database.checkpointing().unwrap(), database.long_timeout());
        let file = file_of(&own).await.unwrap();
        // Pages from before the reader are moved, by this call or by the task of the database.
        look(&own, &writer, file).await.unwrap();
        assert!(!look(&own, &writer, file).await.unwrap(), "an immediate retry moves nothing");
        assert!(checkpoint(&own, "NOOP").await.unwrap().rest() >= SQLITE_CHECKPOINT_PAGES);
        snapshot.rollback().await.unwrap();
        look(&own, &writer, file).await.unwrap();
        assert_eq!(checkpoint(&own, "NOOP").await.unwrap().rest(), 0);
        // Commits then restart the log by themselves, without blocking the writer.
        let bytes = log_bytes(folder.path());
        write(&database, SQLITE_CHECKPOINT_PAGES / 2).await;
        assert_eq!(log_bytes(folder.path()), bytes);
        database.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_reader_does_not_block_writers() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path()).await;
        write(&database, 256).await;
        let snapshot = database.snapshot().await.unwrap();
        write(&database, SQLITE_LOG_PAGES + 1_024).await;
        let (own, writer) = (database.checkpointing().unwrap(), database.long_timeout());
        let since = std::time::Instant::now();
        let file = file_of(&own).await.unwrap();
        assert!(file.is_some());
        assert!(!look(&own, &writer, file).await.unwrap(), "the reader still uses the log");
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
        write(&database, 256).await;
        snapshot.rollback().await.unwrap();
        let mut tries = 0;
        while !look(&own, &writer, file).await.unwrap_or(false) {
            tries += 1;
            assert!(tries < 100);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        // Without further writes, the writer is not blocked again.
        let writing = begin(&database).await;
        let log = checkpoint(&own, "NOOP").await.unwrap();
        assert!(log.pages >= SQLITE_LOG_PAGES && log.rest() == 0);
        assert!(look(&own, &writer, file).await.unwrap(), "it did not wait for the writer");
        writing.rollback().await.unwrap();
        database.close().await.unwrap();
    }
}
