//! Opens the database: one writer and a pool of readers beside it.

use std::time::Duration;

use sea_orm::{
    ConnectOptions, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, SqliteTransactionMode,
    TransactionOptions, TransactionTrait,
};

/// Connections that read while the one writer of SQLite writes.
pub const SQLITE_READERS_MAX: u32 = 8;
/// Connections to PostgreSQL, readers and writers together.
pub const POSTGRES_CONNECTIONS_MAX: u32 = 24;
/// How long a request waits for a free connection before it is told that the database is away.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the database could not be opened.
pub type DatabaseError = DbErr;

/// The database. Writers take turns on SQLite (one connection, `BEGIN IMMEDIATE`); readers have connections of their own.
#[derive(Clone, Debug)]
pub struct Database {
    writer: DatabaseConnection,
    reader: DatabaseConnection,
}

impl Database {
    /// Opens `url`: `sqlite://path?mode=rwc`, or `postgres://...`.
    ///
    /// SQLite runs in WAL mode with `synchronous=FULL` and foreign keys on: what was committed survives a power cut.
    pub async fn open(url: &str) -> Result<Self, DatabaseError> {
        if url.starts_with("sqlite:") {
            let writer = sea_orm::Database::connect(sqlite_options(url, 1)).await?;
            let reader = sea_orm::Database::connect(sqlite_options(url, SQLITE_READERS_MAX)).await?;
            return Ok(Self { writer, reader });
        }
        let mut options = ConnectOptions::new(url);
        options.max_connections(POSTGRES_CONNECTIONS_MAX).acquire_timeout(ACQUIRE_TIMEOUT).sqlx_logging(false);
        let pool = sea_orm::Database::connect(options).await?;
        Ok(Self { writer: pool.clone(), reader: pool })
    }

    /// For queries. Sees everything that was committed before the call.
    pub fn reader(&self) -> &DatabaseConnection {
        &self.reader
    }

    /// For single statements that write and for migrations. Several statements that belong together: [`Self::begin`].
    pub fn writer(&self) -> &DatabaseConnection {
        &self.writer
    }

    /// Begins a transaction that may write (on SQLite `BEGIN IMMEDIATE`, so that it never fails half-way for a lock).
    pub async fn begin(&self) -> Result<DatabaseTransaction, DatabaseError> {
        let mode = (self.backend() == DbBackend::Sqlite).then_some(SqliteTransactionMode::Immediate);
        self.writer
            .begin_with_options(TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() })
            .await
    }

    /// Which database it is.
    pub fn backend(&self) -> DbBackend {
        ConnectionTrait::get_database_backend(&self.writer)
    }

    /// Closes all connections.
    pub async fn close(self) -> Result<(), DatabaseError> {
        let Self { writer, reader } = self;
        reader.close().await?;
        writer.close().await
    }
}

fn sqlite_options(url: &str, connections_max: u32) -> ConnectOptions {
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(connections_max)
        .min_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .sqlx_logging(false)
        // A SQLite connection is a file handle: nothing is won by closing it, and its statement cache is lost.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .map_sqlx_sqlite_opts(|sqlite| {
            sqlite
                .pragma("journal_mode", "WAL")
                .pragma("synchronous", "FULL")
                .pragma("foreign_keys", "ON")
                .pragma("busy_timeout", "5000")
                .pragma("temp_store", "MEMORY")
                .pragma("cache_size", "-65536")
        });
    options
}
