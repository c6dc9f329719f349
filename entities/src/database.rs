//! Opens the database: connections that write and connections that read beside them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sea_orm::sqlx::Connection as _;
use sea_orm::{
    AccessMode, ConnectOptions, ConnectionTrait, DatabaseConnection, DbBackend, DbErr, IsolationLevel,
    SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use tokio::sync::Semaphore;

use crate::checkpoints::{Checkpoints, READERS_PATIENCE, SQLITE_LOG_PAGES_MAX};
use crate::connection::{Connection, Transaction, within};
use crate::failure::Failure;
use crate::postgres;

/// Connections that read while the one writer of SQLite writes.
pub const SQLITE_READERS_MAX: u32 = 8;
/// Connections that read for visitors.
pub const SQLITE_VISITORS_MAX: u32 = 8;
/// Visitors that write, or stand in line for the one writer, at once: the journal stands behind no more.
pub const SQLITE_VISITORS_WRITING_MAX: usize = 2;
/// Statements that a connection to SQLite keeps prepared: all that the journal runs, in every length of their lists.
pub const SQLITE_STATEMENTS_MAX: usize = 512;
/// Rows that SQLite's thread hands over before it waits for whoever reads them: all that a group of the journal's returns, so
/// that a statement is one way there and back.
pub const SQLITE_ROWS_AHEAD_MAX: usize = 1_024;
/// What each connection that reads keeps of the file, KiB.
const SQLITE_READER_CACHE_KIB: u32 = 65_536;
/// The same of the one that writes. A commit that has split pages walks over all of it (SQLite gives a page the number of
/// the one at 1 GiB for a moment, and drops everything behind the end of the file afterwards); what is not in it is in the
/// system's cache.
const SQLITE_WRITER_CACHE_KIB: u32 = 16_384;
/// How long to wait for SQLite's writer, and for another process that holds the file.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening SQLite's file may take.
pub const SQLITE_OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const SQLITE_OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Why the database could not be opened.
pub type DatabaseError = DbErr;

/// The database. Writers take turns on SQLite (one connection, `BEGIN IMMEDIATE`); readers have connections of their own.
#[derive(Clone, Debug)]
pub struct Database {
    writer: Connection,
    reader: Connection,
    visitors: Connection,
    visitors_writing: Arc<Semaphore>,
    patient: DatabaseConnection,
    /// SQLite's.
    checkpoints: Option<Arc<Checkpoints>>,
}

impl Database {
    /// Opens `url`: `sqlite://path?mode=rwc`, or `postgres://...`. Fails within seconds if it cannot be reached; a file of
    /// SQLite's that somebody holds is waited for up to [`SQLITE_OPEN_PATIENCE`].
    ///
    /// SQLite runs in WAL mode with `synchronous=FULL` and foreign keys on: what was committed survives a power cut.
    pub async fn open(url: &str) -> Result<Self, DatabaseError> {
        if url.starts_with("sqlite:") {
            let until = Instant::now() + SQLITE_OPEN_PATIENCE;
            let connect =
                |connections_max, patience| open_sqlite(sqlite_options(url, connections_max, patience), until);
            let writer = connect(1, SQLITE_BUSY_TIMEOUT).await?;
            let reader = connect(SQLITE_READERS_MAX, SQLITE_BUSY_TIMEOUT).await?;
            let visitors = connect(SQLITE_VISITORS_MAX, SQLITE_BUSY_TIMEOUT).await?;
            let checkpoints = Checkpoints::start(connect(1, READERS_PATIENCE).await?, writer.clone());
            let unlimited = |pool| Connection { pool, limit: None, turns: None };
            return Ok(Self {
                patient: writer.clone(),
                writer: unlimited(writer),
                reader: unlimited(reader),
                visitors: unlimited(visitors),
                visitors_writing: Arc::new(Semaphore::new(SQLITE_VISITORS_WRITING_MAX)),
                checkpoints: Some(Arc::new(checkpoints)),
            });
        }
        let server = postgres::Server::reach(url).await?;
        let limited = |max| Connection { pool: server.pool(max), limit: Some(postgres::ANSWER_TIMEOUT), turns: None };
        Ok(Self {
            writer: limited(postgres::WRITERS_MAX),
            reader: limited(postgres::READERS_MAX),
            visitors: limited(postgres::VISITORS_MAX),
            visitors_writing: Arc::new(Semaphore::new(postgres::VISITORS_WRITING_MAX)),
            patient: server.patient_pool(),
            checkpoints: None,
        })
    }

    /// The same database for those who come from outside in any number: they read over connections of their own and only
    /// few of them are at the writers at once, so that no crowd of them keeps the journal and the actors waiting.
    pub fn for_visitors(&self) -> Self {
        let writer = Connection { turns: Some(Arc::clone(&self.visitors_writing)), ..self.writer.clone() };
        Self { reader: self.visitors.clone(), writer, ..self.clone() }
    }

    /// For queries. Sees everything that was committed before the call.
    pub fn reader(&self) -> &Connection {
        &self.reader
    }

    /// For single statements that write. Several statements that belong together: [`Self::begin`].
    pub fn writer(&self) -> &Connection {
        &self.writer
    }

    /// For what may take its time while nobody waits for it: migrations, and deleting what is old.
    pub fn patient(&self) -> &DatabaseConnection {
        &self.patient
    }

    /// Begins a transaction that may write (on SQLite `BEGIN IMMEDIATE`, so that it never fails half-way for a lock).
    pub async fn begin(&self) -> Result<Transaction, DatabaseError> {
        let turn = self.writer.turn().await?;
        let Connection { pool, limit, .. } = &self.writer;
        let mode = (self.backend() == DbBackend::Sqlite).then_some(SqliteTransactionMode::Immediate);
        let options = TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() };
        let inner = within(*limit, pool.begin_with_options(options)).await?;
        Ok(Transaction { inner, limit: *limit, _turn: turn })
    }

    /// A transaction that only reads and sees the database as it is now, whatever is committed meanwhile. Its queries may
    /// take their time.
    pub async fn snapshot(&self) -> Result<Transaction, DatabaseError> {
        let (inner, first) = if self.backend() == DbBackend::Sqlite {
            (self.reader.pool.begin().await?, "SELECT COUNT(*) FROM sqlite_schema")
        } else {
            let (level, access) = (Some(IsolationLevel::RepeatableRead), Some(AccessMode::ReadOnly));
            let begun = self.patient.begin_with_config(level, access);
            (within(Some(postgres::ANSWER_TIMEOUT), begun).await?, "SELECT 1")
        };
        // The first query, not the beginning, is what takes the snapshot.
        within(Some(SQLITE_BUSY_TIMEOUT), inner.execute_unprepared(first)).await?;
        Ok(Transaction { inner, limit: None, _turn: None })
    }

    /// Which database it is.
    pub fn backend(&self) -> DbBackend {
        ConnectionTrait::get_database_backend(&self.writer)
    }

    #[cfg(test)]
    pub(crate) fn checkpointing(&self) -> Option<DatabaseConnection> {
        self.checkpoints.as_ref().map(|checkpoints| checkpoints.connection())
    }

    /// Closes all connections.
    pub async fn close(self) -> Result<(), DatabaseError> {
        let Self { writer, reader, visitors, patient, checkpoints, .. } = self;
        if let Some(checkpoints) = checkpoints {
            checkpoints.close().await?;
        }
        visitors.pool.close().await?;
        reader.pool.close().await?;
        writer.pool.close().await?;
        patient.close().await
    }
}

/// A disk that stands still for a while, or another process that is just at the file, keeps nobody from starting.
async fn open_sqlite(options: ConnectOptions, until: Instant) -> Result<DatabaseConnection, DatabaseError> {
    loop {
        match sea_orm::Database::connect(options.clone()).await {
            Err(error) if Failure::is_delay(&error) && Instant::now() < until => {
                tokio::time::sleep(SQLITE_OPEN_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// The file of a database of SQLite's; `None` of one in memory.
pub(crate) async fn sqlite_file(connection: &impl ConnectionTrait) -> Result<Option<PathBuf>, DbErr> {
    let list = Statement::from_string(DbBackend::Sqlite, "PRAGMA database_list");
    let Some(main) = connection.query_one_raw(list).await? else { return Ok(None) };
    let path: String = main.try_get("", "file")?;
    Ok((!path.is_empty()).then(|| path.into()))
}

fn sqlite_options(url: &str, connections_max: u32, patience: Duration) -> ConnectOptions {
    let cache_kib = if connections_max == 1 { SQLITE_WRITER_CACHE_KIB } else { SQLITE_READER_CACHE_KIB };
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(connections_max)
        .min_connections(1)
        .acquire_timeout(SQLITE_BUSY_TIMEOUT)
        .sqlx_logging(false)
        // A SQLite connection is a file handle: nothing is won by closing it, and its statement cache is lost.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        // SQLite ends a transaction by itself when the disk is full, and the driver does not notice: within its connection
        // every later transaction would be a part of one that nobody commits. Such a connection is replaced.
        .map_sqlx_sqlite_before_acquire(|connection, _| {
            let is_clean = !connection.is_in_transaction();
            Box::pin(async move { Ok(is_clean) })
        })
        .map_sqlx_sqlite_opts(move |sqlite| {
            sqlite
                .pragma("journal_mode", "WAL")
                .pragma("synchronous", "FULL")
                .pragma("foreign_keys", "ON")
                .pragma("busy_timeout", patience.as_millis().to_string())
                .pragma("temp_store", "MEMORY")
                .pragma("wal_autocheckpoint", SQLITE_LOG_PAGES_MAX.to_string())
                .pragma("cache_size", format!("-{cache_kib}"))
                .statement_cache_capacity(SQLITE_STATEMENTS_MAX)
                .row_buffer_size(SQLITE_ROWS_AHEAD_MAX)
        });
    options
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_held_for_longer_than_one_wait_is_opened_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let holder = sea_orm::Database::connect(ConnectOptions::new(&url).max_connections(1).clone()).await.unwrap();
        holder.execute_unprepared("BEGIN EXCLUSIVE; CREATE TABLE things (id INTEGER)").await.unwrap();
        let opening = tokio::spawn(async move { Database::open(&url).await });
        tokio::time::sleep(SQLITE_BUSY_TIMEOUT + Duration::from_secs(1)).await;
        assert!(!opening.is_finished());
        holder.execute_unprepared("COMMIT").await.unwrap();
        holder.close().await.unwrap();
        let database = opening.await.unwrap().unwrap();
        database.reader().execute_unprepared("SELECT * FROM things").await.unwrap();
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn what_the_writer_commits_survives_a_power_cut() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        // As a new file, and as one that is there.
        for _ in 0..2 {
            let database = Database::open(&url).await.unwrap();
            let row = async |pragma: &str| {
                let statement = Statement::from_string(DbBackend::Sqlite, format!("PRAGMA {pragma}"));
                database.writer().query_one_raw(statement).await.unwrap().unwrap()
            };
            let full = row("synchronous").await.try_get_by_index::<i64>(0).unwrap();
            let mode = row("journal_mode").await.try_get_by_index::<String>(0).unwrap();
            assert_eq!((full, mode.as_str()), (2, "wal"), "FULL: a sync of the log in every commit");
            database.close().await.unwrap();
        }
    }
}
