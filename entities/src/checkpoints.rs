//! Moves SQLite's write-ahead log into the database beside the writer, so that no commit has to wait for it.
//!
//! Left to SQLite, the commit that makes the log long enough moves all of it. Here a connection of its own moves a little at a
//! time while commits go on behind it, and brings it to the disk. Only when the log is long, and then only for the few pages
//! that were added meanwhile, is the writer kept out: the log begins anew only when all of it is moved, and each such wait
//! is one that every commit has. Deliberately absent: a promise. Where this does not come to it (a full disk, a reader that
//! stays, a process that ends), SQLite's own limit of the writer stands behind it, and SQLite syncs whatever it needs to have
//! on the disk itself, after us as before.

use std::fs::{File, OpenOptions};
use std::time::Duration;

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr};
use tokio::task::JoinHandle;

use crate::database::sqlite_file;

/// Pages of the log that are moved at a time, while commits go on (8 MiB). Most commits touch the same pages of the indexes
/// again, and the more are moved at once, the fewer of them are written twice; but whoever waits for a processor or for the
/// disk meanwhile waits longer.
pub const SQLITE_CHECKPOINT_PAGES: i64 = 2_048;
/// Pages in the log from which on it is to begin anew (128 MiB). It costs a start after a kill a third of a second.
pub const SQLITE_LOG_PAGES: i64 = 32_768;
/// Pages in the log after which the writer itself moves them in its commit (256 MiB).
pub const SQLITE_LOG_PAGES_MAX: i64 = 65_536;

/// How often the log's length is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Pages that are moved while the writer is kept out (2 MiB).
const REST_PAGES_MAX: i64 = 512;
/// How often what was added meanwhile is moved before the writer is kept out, however much it still is.
const PASSES_MAX: u32 = 4;
/// How long readers that still use the log are waited for while the writer is kept out.
pub(crate) const READERS_PATIENCE: Duration = Duration::from_millis(20);
/// The wait after a checkpoint that failed, or that a reader stood in the way of.
const PAUSE: Duration = Duration::from_secs(1);

/// Checkpoints are made until this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    task: JoinHandle<()>,
    pool: DatabaseConnection,
}

impl Checkpoints {
    /// `own` is the connection that moves, `writer` the pool of the one that writes.
    pub(crate) fn start(own: DatabaseConnection, writer: DatabaseConnection) -> Self {
        let pool = own.clone();
        Self { task: tokio::spawn(watch(own, writer)), pool }
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> DatabaseConnection {
        self.pool.clone()
    }

    /// Ends them and closes their connection.
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
        // What cannot be done now is tried again; who writes hears of a disk that is full.
        if !matches!(look(&own, &writer, file).await, Ok(true)) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The database's file, to be synced; none of a database in memory.
///
/// It is never closed: a process that closes any descriptor of a file gives up all its locks on it (POSIX), those of every
/// connection of SQLite's among them.
async fn file_of(connection: &DatabaseConnection) -> Result<Option<&'static File>, DbErr> {
    let Some(path) = sqlite_file(connection).await? else { return Ok(None) };
    // Without it all is as it was, but slower.
    let file = OpenOptions::new().read(true).write(true).open(path).ok();
    Ok(file.map(|file| &*Box::leak(Box::new(file))))
}

/// Moves what there is to move, and has the log begin anew if it is long; `false` if somebody stood in the way.
async fn look(
    own: &DatabaseConnection,
    writer: &DatabaseConnection,
    file: Option<&'static File>,
) -> Result<bool, DbErr> {
    let log = checkpoint(own, "NOOP").await?;
    if log.pages < SQLITE_LOG_PAGES {
        // While a reader stays, nothing is moved that was written after it began.
        return Ok(log.rest() < SQLITE_CHECKPOINT_PAGES || move_pages(own, file).await?.moved > log.moved);
    }
    if log.rest() == 0 {
        // The next commit begins anew by itself.
        return Ok(true);
    }
    for _ in 0..PASSES_MAX {
        move_pages(own, file).await?;
        if checkpoint(own, "NOOP").await?.rest() <= REST_PAGES_MAX {
            break;
        }
    }
    // Whoever wants to write meanwhile waits for the pool, in line, and not for SQLite's lock by chance.
    let _writer =
        writer.get_sqlite_connection_pool().acquire().await.map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(!checkpoint(own, "RESTART").await?.is_busy)
}

/// Moves what is in the log now beside the writer, brings it to the disk, and answers how far it came.
async fn move_pages(own: &DatabaseConnection, file: Option<&'static File>) -> Result<Log, DbErr> {
    let log = checkpoint(own, "PASSIVE").await?;
    if let Some(file) = file {
        // An error is SQLite's to find: it syncs once more before the log begins anew.
        let _ = tokio::task::spawn_blocking(move || file.sync_data()).await;
    }
    Ok(log)
}

/// What SQLite says of a checkpoint.
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
        .ok_or_else(|| DbErr::RecordNotFound("the answer to a checkpoint".to_owned()))?;
    let number = |column: usize| row.try_get_by_index::<i64>(column);
    Ok(Log { is_busy: number(0)? != 0, pages: number(1)?, moved: number(2)? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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

    /// A disk that stands still for a while keeps a writer waiting longer than it gets: then it is asked again.
    async fn begin(database: &Database) -> crate::Transaction {
        let since = std::time::Instant::now();
        loop {
            match database.begin().await {
                Ok(transaction) => return transaction,
                Err(error) => assert!(since.elapsed() < Duration::from_mins(1), "{error}"),
            }
        }
    }

    /// Writes about so many pages, a few a commit.
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
    async fn the_log_stays_bounded_while_much_is_written() {
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
        assert_eq!(log_bytes(folder.path()), 0, "whoever closes last takes the log away");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_reader_keeps_in_the_log_is_moved_when_it_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path()).await;
        let snapshot = database.snapshot().await.unwrap();
        write(&database, 2 * SQLITE_CHECKPOINT_PAGES).await;
        let (own, writer) = (database.checkpointing().unwrap(), database.patient().clone());
        let file = file_of(&own).await.unwrap();
        // What was there before the reader began is moved, by this look or by one of the service's own.
        look(&own, &writer, file).await.unwrap();
        assert!(!look(&own, &writer, file).await.unwrap(), "there is nothing to be had by looking again at once");
        assert!(checkpoint(&own, "NOOP").await.unwrap().rest() >= SQLITE_CHECKPOINT_PAGES);
        snapshot.rollback().await.unwrap();
        look(&own, &writer, file).await.unwrap();
        assert_eq!(checkpoint(&own, "NOOP").await.unwrap().rest(), 0);
        // Commits begin the log anew by themselves then, and nobody is kept out for it.
        let bytes = log_bytes(folder.path());
        write(&database, SQLITE_CHECKPOINT_PAGES / 2).await;
        assert_eq!(log_bytes(folder.path()), bytes);
        database.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_that_stays_keeps_nobody_from_writing() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path()).await;
        write(&database, 256).await;
        let snapshot = database.snapshot().await.unwrap();
        write(&database, SQLITE_LOG_PAGES + 1_024).await;
        let (own, writer) = (database.checkpointing().unwrap(), database.patient().clone());
        let since = std::time::Instant::now();
        let file = file_of(&own).await.unwrap();
        assert!(file.is_some());
        assert!(!look(&own, &writer, file).await.unwrap(), "what the reader sees is still in the log");
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
        write(&database, 256).await;
        snapshot.rollback().await.unwrap();
        let mut tries = 0;
        while !look(&own, &writer, file).await.unwrap_or(false) {
            tries += 1;
            assert!(tries < 100);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        // While nothing is written after that, nobody is kept out again.
        let writing = begin(&database).await;
        let log = checkpoint(&own, "NOOP").await.unwrap();
        assert!(log.pages >= SQLITE_LOG_PAGES && log.rest() == 0);
        assert!(look(&own, &writer, file).await.unwrap(), "it did not wait for the writer");
        writing.rollback().await.unwrap();
        database.close().await.unwrap();
    }
}
