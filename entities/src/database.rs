//! Opens the database, with separate connections for writing and for reading.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sea_orm::{
    AccessMode, ConnectOptions, ConnectionTrait, DatabaseConnection, DbBackend, DbErr, IsolationLevel,
    SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::checkpoints::{Checkpoints, READERS_PATIENCE, SQLITE_LOG_PAGES_MAX};
use crate::connection::{Connection, Transaction};
use crate::counts::{StatementCounter, StatementCounts};
use crate::failure::DatabaseFailure;
use crate::pool::{Pool, within};
use crate::postgres;
use crate::writer_lock::{Sharing, WriterLock};

/// Read connections beside SQLite's single writer.
pub const SQLITE_READERS_MAX: u32 = 8;
/// Read connections for API requests.
pub const SQLITE_API_CALLS_MAX: u32 = 8;
/// API requests that write, or wait for the single writer, at the same time. The journal never queues behind more than
/// these.
pub const SQLITE_API_WRITES_MAX: usize = 2;
/// Prepared statements per SQLite connection: every statement of the journal, with every length of its lists.
pub const SQLITE_STATEMENTS_MAX: usize = 512;
/// Rows that SQLite's thread returns before it waits for the reader. Enough for one group of the journal, so that a
/// statement is one round trip.
pub const SQLITE_ROWS_AHEAD_MAX: usize = 1_024;
/// Page cache of each read connection, in KiB.
const SQLITE_READER_CACHE_KIB: u32 = 65_536;
/// Page cache of the write connection, in KiB. A commit that has split pages scans the whole cache (SQLite temporarily
/// assigns the page number at 1 GiB and then drops all pages behind the end of the file). Pages outside it are in the
/// cache of the operating system.
const SQLITE_WRITER_CACHE_KIB: u32 = 16_384;
/// Time limit for SQLite's writer, and for another process that locks the file.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for opening SQLite's file.
pub const SQLITE_OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// Mode of a new file: its owner reads and writes it.
#[cfg(unix)]
const OWNER_ONLY: u32 = 0o600;
/// Delay between attempts.
const SQLITE_OPEN_PAUSE: Duration = Duration::from_millis(100);

/// The database. On SQLite, writers share one connection (`BEGIN IMMEDIATE`); readers have separate connections.
#[derive(Clone, Debug)]
pub struct Database {
    writer: Connection,
    reader: Connection,
    visitors: Connection,
    visitors_writing: Arc<Semaphore>,
    long_timeout: Pool,
    journal_counter: Arc<StatementCounter>,
    /// The journal's only connection, and the lock that its sessions hold. Set only for PostgreSQL.
    pub(crate) journal: Option<(Connection, Arc<WriterLock>)>,
    /// Set only for SQLite.
    checkpoints: Option<Arc<Checkpoints>>,
    /// Set only for PostgreSQL.
    primary: Option<postgres::Primary>,
    /// Follows the primary. Set only for PostgreSQL.
    _following: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Database {
    /// As [`Self::open_primary`], with one URL.
    pub async fn open(url: &str) -> Result<Self, DbErr> {
        Self::open_primary(&[url]).await
    }

    /// Opens a database: `sqlite://path?mode=rwc`, or `postgres://...`. Several URLs are PostgreSQL servers that replicate each
    /// other: all connections lead to the primary, also when another server becomes it. Fails within seconds if the database
    /// is unreachable. If another process locks an SQLite file, it retries for up to [`SQLITE_OPEN_PATIENCE`].
    ///
    /// A new SQLite file is readable by its owner only.
    ///
    /// SQLite runs in WAL mode with `synchronous=FULL` and foreign keys enabled, so committed data survives a power
    /// failure.
    pub async fn open_primary(urls: &[impl AsRef<str>]) -> Result<Self, DbErr> {
        Self::open_with(urls, Sharing::Alone).await
    }

    /// As [`Self::open_primary`], for a node that shares the database with other nodes.
    pub async fn open_shared(urls: &[impl AsRef<str>]) -> Result<Self, DbErr> {
        Self::open_with(urls, Sharing::Shared).await
    }

    async fn open_with(urls: &[impl AsRef<str>], sharing: Sharing) -> Result<Self, DbErr> {
        let [journal_counter, of_writer] =
            ["journal", "writer"].map(|pool| Arc::new(StatementCounter::of_writes(pool)));
        let [of_reader, of_api] = ["reader", "api"].map(|pool| Arc::new(StatementCounter::of_reads(pool)));
        if let [url] = urls
            && url.as_ref().starts_with("sqlite:")
        {
            let url = url.as_ref();
            make_private(url);
            let until = Instant::now() + SQLITE_OPEN_PATIENCE;
            let connect =
                |connections_max, patience| open_sqlite(sqlite_options(url, connections_max, patience), until);
            let writer = connect(1, SQLITE_BUSY_TIMEOUT).await?;
            let reader = connect(SQLITE_READERS_MAX, SQLITE_BUSY_TIMEOUT).await?;
            let visitors = connect(SQLITE_API_CALLS_MAX, SQLITE_BUSY_TIMEOUT).await?;
            let checkpoints = Checkpoints::start(connect(1, READERS_PATIENCE).await?, writer.clone());
            let unlimited = |pool, counter| Connection { pool: Pool::lasting(pool), turns: None, counter };
            return Ok(Self {
                long_timeout: Pool::lasting(writer.clone()),
                writer: unlimited(writer, of_writer),
                reader: unlimited(reader, of_reader),
                visitors: unlimited(visitors, of_api),
                journal_counter,
                visitors_writing: Arc::new(Semaphore::new(SQLITE_API_WRITES_MAX)),
                journal: None,
                checkpoints: Some(Arc::new(checkpoints)),
                primary: None,
                _following: None,
            });
        }
        let primary = postgres::Primary::reach(urls).await?;
        let limited = |(max, counter)| Connection { pool: primary.pool(max), turns: None, counter };
        let lock = Arc::new(WriterLock::new(&primary.application(), sharing));
        let [writer, reader, visitors] =
            [(postgres::WRITERS_MAX, of_writer), (postgres::READERS_MAX, of_reader), (postgres::API_CALLS_MAX, of_api)]
                .map(limited);
        let (long_timeout, journal) = (primary.patient_pool(), primary.journal_pool(&lock));
        let pools = [&writer, &reader, &visitors].map(|connection| connection.pool.clone());
        let pools = pools.into_iter().chain([long_timeout.clone(), journal.clone()]).collect();
        Ok(Self {
            writer,
            reader,
            visitors,
            visitors_writing: Arc::new(Semaphore::new(postgres::API_WRITES_MAX)),
            long_timeout,
            journal: Some((Connection { pool: journal, turns: None, counter: Arc::clone(&journal_counter) }, lock)),
            journal_counter,
            checkpoints: None,
            _following: Some(Arc::new(primary.follow(pools))),
            primary: Some(primary),
        })
    }

    /// Returns the database for API requests, which may be many. They read through their own connections, and only a
    /// few can write at the same time, so that they do not delay the journal and the actors.
    pub fn api_pool(&self) -> Self {
        let writer = Connection { turns: Some(Arc::clone(&self.visitors_writing)), ..self.writer.clone() };
        Self { reader: self.visitors.clone(), writer, ..self.clone() }
    }

    /// The database for the journal, whose writes use the connection that holds the lock.
    #[must_use]
    pub fn for_journal(&self) -> Self {
        let writer = match &self.journal {
            Some((journal, _)) => journal.clone(),
            None => Connection { counter: Arc::clone(&self.journal_counter), ..self.writer.clone() },
        };
        Self { writer, ..self.clone() }
    }

    /// Connections for queries. They see everything that was committed before the call.
    pub fn reader(&self) -> &Connection {
        &self.reader
    }

    /// Connections for single write statements. For several related statements use [`Self::begin`].
    pub fn writer(&self) -> &Connection {
        &self.writer
    }

    /// Connections without time limits, for slow background work: migrations and deletion of old rows.
    pub fn long_timeout(&self) -> DatabaseConnection {
        self.long_timeout.now()
    }

    /// A connection for writes that may be lost when another server becomes the primary; they do not wait for a standby.
    /// It is made in the runtime that uses it first. On SQLite it is the writer.
    pub fn unreplicated(&self) -> Connection {
        let Some(primary) = &self.primary else { return self.writer.clone() };
        Connection { pool: primary.unreplicated_pool(), ..self.writer.clone() }
    }

    /// Pool for one listener of notifications; `None` for SQLite. Make a new one after each error: another server may have
    /// become the primary.
    pub fn listener_pool(&self) -> Option<sqlx::PgPool> {
        self.primary.as_ref().map(postgres::Primary::listener_pool)
    }

    /// Begins a write transaction (on SQLite `BEGIN IMMEDIATE`, so that it never fails in the middle because of a
    /// lock).
    pub async fn begin(&self) -> Result<Transaction, DbErr> {
        let turn = self.writer.turn().await?;
        let call = self.writer.pool.call();
        let mode = (self.backend() == DbBackend::Sqlite).then_some(SqliteTransactionMode::Immediate);
        let options = TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() };
        let inner = call.within(call.pool.begin_with_options(options)).await?;
        Ok(Transaction { inner, call: Some(call), counter: Arc::clone(&self.writer.counter), _turn: turn })
    }

    /// Begins a read-only transaction on the current state of the database, unaffected by later commits. Its queries
    /// have no time limit.
    pub async fn snapshot(&self) -> Result<Transaction, DbErr> {
        let (inner, first) = if self.backend() == DbBackend::Sqlite {
            (self.reader.pool.now().begin().await?, "SELECT COUNT(*) FROM sqlite_schema")
        } else {
            let (level, access) = (Some(IsolationLevel::RepeatableRead), Some(AccessMode::ReadOnly));
            let pool = self.long_timeout.now();
            let begun = pool.begin_with_config(level, access);
            (within(postgres::ANSWER_TIMEOUT, begun).await?, "SELECT 1")
        };
        // The snapshot is taken by the first query, not by the start of the transaction.
        within(SQLITE_BUSY_TIMEOUT, inner.execute_unprepared(first)).await?;
        Ok(Transaction { inner, call: None, counter: Arc::clone(&self.reader.counter), _turn: None })
    }

    /// Returns the statements and commits of each pool so far. Those of migrations, checkpoints and other connections
    /// without time limits do not count.
    pub fn counts(&self) -> [StatementCounts; 4] {
        let Self { writer, reader, visitors, journal_counter, .. } = self;
        [journal_counter, &writer.counter, &reader.counter, &visitors.counter].map(|counter| counter.read())
    }

    /// Returns the type of the database.
    pub fn backend(&self) -> DbBackend {
        ConnectionTrait::get_database_backend(&self.writer)
    }

    #[cfg(test)]
    pub(crate) fn checkpointing(&self) -> Option<DatabaseConnection> {
        self.checkpoints.as_ref().map(|checkpoints| checkpoints.connection())
    }

    /// Closes all connections.
    pub async fn close(self) -> Result<(), DbErr> {
        let Self { writer, reader, visitors, long_timeout, journal, checkpoints, _following, .. } = self;
        if let Some(checkpoints) = checkpoints {
            checkpoints.close().await?;
        }
        if let Some((journal, _)) = journal {
            journal.pool.now().close().await?;
        }
        visitors.pool.now().close().await?;
        reader.pool.now().close().await?;
        writer.pool.now().close().await?;
        long_timeout.now().close().await
    }
}

/// Creates the file of a new SQLite database for its owner only. SQLite gives its other files the same mode.
fn make_private(url: &str) {
    if let (true, Ok(options)) = (url.contains("mode=rwc"), url.parse::<SqliteConnectOptions>()) {
        // An existing file keeps its mode. The driver reports every other error.
        let _ = private_file().create_new(true).open(options.get_filename());
    }
}

/// Options for writing a file that only its owner can read.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, OWNER_ONLY);
    options
}

/// Opens SQLite. Retries if the disk is slow or another process locks the file.
async fn open_sqlite(options: ConnectOptions, until: Instant) -> Result<DatabaseConnection, DbErr> {
    loop {
        match sea_orm::Database::connect(options.clone()).await {
            Err(error) if DatabaseFailure::is_delay(&error) && Instant::now() < until => {
                tokio::time::sleep(SQLITE_OPEN_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Returns the file of an SQLite database; `None` for an in-memory database.
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
        // An SQLite connection is a file handle. Closing it saves nothing and loses its statement cache.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        // SQLite ends a transaction by itself when the disk is full, and the driver does not notice: later transactions
        // on this connection would become part of one that is never committed. Such a connection is replaced.
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
mod tests {
    use super::*;

    #[tokio::test]
    async fn opens_a_file_that_is_locked_longer_than_one_timeout() {
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

    #[cfg(unix)]
    #[tokio::test]
    async fn files_of_a_new_database_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let database = Database::open(&url).await.unwrap();
        let hold = database.hold().await.unwrap();
        database.writer().execute_unprepared("CREATE TABLE things (id INTEGER)").await.unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap());
        let mut names: Vec<_> = files().map(|file| file.file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["test.db", "test.db-service", "test.db-shm", "test.db-wal"]);
        for file in files() {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
        drop(hold);
        database.close().await.unwrap();
        // An existing file keeps the mode that its owner gave it.
        let file = folder.path().join("test.db");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        Database::open(&url).await.unwrap().close().await.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[tokio::test]
    async fn commits_survive_a_power_failure() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        // Check a new file and an existing one.
        for _ in 0..2 {
            let database = Database::open(&url).await.unwrap();
            let row = async |pragma: &str| {
                let statement = Statement::from_string(DbBackend::Sqlite, format!("PRAGMA {pragma}"));
                database.writer().query_one_raw(statement).await.unwrap().unwrap()
            };
            let full = row("synchronous").await.try_get_by_index::<i64>(0).unwrap();
            let mode = row("journal_mode").await.try_get_by_index::<String>(0).unwrap();
            assert_eq!((full, mode.as_str()), (2, "wal"), "FULL: every commit syncs the log");
            database.close().await.unwrap();
        }
    }
}
