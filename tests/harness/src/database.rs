//! Databases for tests: each has one of its own, of SQLite in a folder or on a PostgreSQL server, gone with the test.
//!
//! Which of the two is the environment's choice, so that the same tests run on both; see [`TestDatabase::create`]. The
//! tables are not made here: that is the service's own part.

use std::path::{Path, PathBuf};

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, SqliteTransactionMode, Statement,
    TransactionOptions, TransactionTrait,
};
use tempfile::TempDir;
use ulid::Ulid;
use url::Url;

/// The variable that names the database to test on: `sqlite` (also when it is not set) or `postgres`.
pub const DATABASE: &str = "PAYFERRY_TEST_DATABASE";
/// The variable that names a PostgreSQL server, as `postgres://user@host:port`: `tests/with-postgres` sets it.
pub const POSTGRES: &str = "PAYFERRY_TEST_POSTGRES";

/// An empty database that nobody else uses, removed when this is dropped.
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    place: Place,
}

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Writing; they can read.
    Writes,
    /// Everything on PostgreSQL. On SQLite nothing keeps others from reading, so there it is writing, too.
    Everything,
}

/// A lock; dropped, it is released soon.
#[derive(Debug)]
pub struct Held(DatabaseTransaction);

impl Held {
    /// Lets the others go on.
    pub async fn release(self) {
        self.0.rollback().await.unwrap();
    }
}

#[derive(Debug)]
enum Place {
    Folder(TempDir),
    Server { server: Url, name: String },
}

impl TestDatabase {
    /// Of the kind that `PAYFERRY_TEST_DATABASE` names.
    pub async fn create() -> Self {
        if chosen_postgres() { Self::postgres().await } else { Self::sqlite() }
    }

    /// On the PostgreSQL server that `PAYFERRY_TEST_POSTGRES` names, whatever is chosen.
    pub async fn postgres() -> Self {
        let Ok(server) = std::env::var(POSTGRES) else {
            panic!(
                "this test needs a PostgreSQL server: run it as `tests/with-postgres cargo test ...`, \
                 or name one in {POSTGRES} (postgres://user@host:port)"
            );
        };
        let server: Url = server.parse().unwrap_or_else(|error| panic!("{POSTGRES}: {error}"));
        let name = format!("test_{}", Ulid::generate()).to_lowercase();
        administer(&server, &format!("CREATE DATABASE {name}")).await.unwrap();
        let url = with_database(&server, &name).into();
        Self { url, place: Place::Server { server, name } }
    }

    /// A SQLite file, whatever is chosen: for tests of what only files do.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("payferry.db").display());
        Self { url, place: Place::Folder(folder) }
    }

    /// As the service takes it: `sqlite://path?mode=rwc` or `postgres://user@host:port/name`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is on a PostgreSQL server.
    pub fn is_postgres(&self) -> bool {
        matches!(self.place, Place::Server { .. })
    }

    /// SQLite's file.
    pub fn file(&self) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join("payferry.db"))
    }

    /// The folder of SQLite's file, where the files beside it are, too.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(folder) => Some(folder.path()),
            Place::Server { .. } => None,
        }
    }

    /// Stands in everybody's way until it is released.
    pub async fn lock(&self, lock: Lock) -> Held {
        let connection = self.connect().await;
        let mode = (!self.is_postgres()).then_some(SqliteTransactionMode::Exclusive);
        let options = TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() };
        let transaction = connection.begin_with_options(options).await.unwrap();
        if self.is_postgres() {
            let tables = "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = 'public'";
            let tables = transaction.query_one_raw(Statement::from_string(DbBackend::Postgres, tables)).await.unwrap();
            let tables: String = tables.unwrap().try_get_by_index(0).unwrap();
            let mode = match lock {
                Lock::Writes => "EXCLUSIVE",
                Lock::Everything => "ACCESS EXCLUSIVE",
            };
            transaction.execute_unprepared(&format!("LOCK TABLE {tables} IN {mode} MODE")).await.unwrap();
        }
        Held(transaction)
    }

    /// A connection past the service, to look or to stand in its way.
    pub async fn connect(&self) -> DatabaseConnection {
        connect(&self.url).await.unwrap()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Place::Server { server, name } = &self.place else { return };
        // On a thread of its own, since the test's runtime may be the one that drops it. WITH (FORCE) ends whoever is
        // still connected.
        let dropped = std::thread::scope(|scope| {
            let remove = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                runtime.block_on(administer(server, &statement)).map_err(std::io::Error::other)
            };
            scope.spawn(remove).join()
        });
        // A server that is gone has taken the database along; a test that fails says why itself.
        if let Ok(Err(error)) = dropped {
            eprintln!("the test's database {name} stays: {error}");
        }
    }
}

/// Whether tests run on PostgreSQL.
pub fn chosen_postgres() -> bool {
    match std::env::var(DATABASE).as_deref() {
        Ok("postgres") => true,
        Ok("sqlite") | Err(_) => false,
        Ok(other) => panic!("{DATABASE} is {other:?}, expected sqlite or postgres"),
    }
}

fn with_database(server: &Url, name: &str) -> Url {
    let mut url = server.clone();
    url.set_path(name);
    url
}

async fn administer(server: &Url, statement: &str) -> Result<(), DbErr> {
    let admin = connect(with_database(server, "postgres").as_str()).await?;
    admin.execute_unprepared(statement).await?;
    admin.close().await
}

async fn connect(url: &str) -> Result<DatabaseConnection, DbErr> {
    let mut options = sea_orm::ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    sea_orm::Database::connect(options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_of_its_own_is_gone_with_the_test() {
        let (one, other) = (TestDatabase::create().await, TestDatabase::create().await);
        assert_ne!(one.url(), other.url());
        let connection = one.connect().await;
        connection.execute_unprepared("CREATE TABLE things (id INTEGER)").await.unwrap();
        assert!(other.connect().await.execute_unprepared("SELECT * FROM things").await.is_err());

        let (url, folder) = (one.url().to_owned(), one.folder().map(Path::to_owned));
        drop(one);
        match folder {
            Some(folder) => assert!(!folder.exists()),
            None => assert!(connect(&url).await.is_err(), "dropped beside an open connection"),
        }
    }
}
