//! Databases for tests: each test gets its own, a SQLite file in a folder or a database on a PostgreSQL server, removed
//! after the test.
//!
//! The environment selects the kind, so that the same tests run on both; see [`TestDatabase::create`]. A database
//! has today's tables from the start: it is a copy of a template (see `template.rs`). The service's own migration then finds nothing to do.

mod fault;
mod template;

use std::path::{Path, PathBuf};

use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend, DbErr, Statement};
use tempfile::TempDir;
use ulid::Ulid;
use url::Url;

pub use fault::{DatabaseFault, Held, Lock};

/// Variable that selects the database for tests: `sqlite` (the default) or `postgres`.
pub const DATABASE: &str = "PAYFERRY_TEST_DATABASE";
/// Variable with the URL of a PostgreSQL server, `postgres://user@host:port`: `tests/with-postgres` sets it.
pub const POSTGRES: &str = "PAYFERRY_TEST_POSTGRES";
/// A small tablespace of the server, used by one test at a time.
const SMALL_TABLESPACE: &str = "small";
const SQLITE_FILE: &str = "payferry.db";

/// A database that nothing else uses, without rows, removed when this is dropped.
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    place: Storage,
}

#[derive(Debug)]
enum Storage {
    Folder(TempDir),
    /// A folder that is not removed on drop.
    Foreign(PathBuf),
    Server {
        server: Url,
        name: String,
        /// True if the database is in the small tablespace.
        is_small: bool,
    },
}

impl TestDatabase {
    /// Creates a database of the kind selected by `PAYFERRY_TEST_DATABASE`.
    pub async fn create() -> Self {
        if chosen_postgres() { Self::postgres().await } else { Self::sqlite() }
    }

    /// The same without tables: for tests of migrations.
    pub async fn empty() -> Self {
        if chosen_postgres() {
            return Self::empty_postgres().await;
        }
        let folder = tempfile::tempdir().unwrap();
        Self { url: sqlite_url(folder.path()), place: Storage::Folder(folder) }
    }

    /// On the PostgreSQL server, whatever kind is selected, and without tables.
    pub async fn empty_postgres() -> Self {
        Self::on_server(false, false).await
    }

    /// On the PostgreSQL server that `PAYFERRY_TEST_POSTGRES` names, whatever kind is selected.
    pub async fn postgres() -> Self {
        Self::on_server(false, true).await
    }

    async fn on_server(is_small: bool, has_tables: bool) -> Self {
        let Ok(server) = std::env::var(POSTGRES) else {
            panic!(
                "this test needs a PostgreSQL server: run it with `tests/with-postgres cargo test ...`, \
                 or set {POSTGRES} to the URL of a server (postgres://user@host:port)"
            );
        };
        let server: Url = server.parse().unwrap_or_else(|error| panic!("{POSTGRES}: {error}"));
        let name = format!("test_{}", Ulid::generate()).to_lowercase();
        let place = if is_small { format!(" TABLESPACE {SMALL_TABLESPACE}") } else { String::new() };
        if has_tables {
            template::copy_postgres(&server, &name, &place).await.unwrap();
        } else {
            administer(&server, &format!("CREATE DATABASE {name}{place}")).await.unwrap();
        }
        let url = with_database(&server, &name).into();
        Self { url, place: Storage::Server { server, name, is_small } }
    }

    /// Creates a SQLite file, whichever kind is selected: for tests of file behaviour.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        template::apart(template::copy_sqlite(&folder.path().join(SQLITE_FILE)));
        Self { url: sqlite_url(folder.path()), place: Storage::Folder(folder) }
    }

    /// A SQLite file, yet to be made, in a folder that is not this one's to remove.
    pub fn sqlite_in(folder: &Path) -> Self {
        Self { url: sqlite_url(folder), place: Storage::Foreign(folder.to_owned()) }
    }

    /// Database URL as in the service's configuration: `sqlite://path?mode=rwc` or `postgres://user@host:port/name`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same database with another URL, such as that of another role.
    #[must_use]
    pub fn at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    /// Returns true if the database is on a PostgreSQL server.
    pub fn is_postgres(&self) -> bool {
        matches!(self.place, Storage::Server { .. })
    }

    /// Path of the SQLite file.
    pub fn file(&self) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join(SQLITE_FILE))
    }

    /// Folder of the SQLite file and its companion files.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Storage::Folder(folder) => Some(folder.path()),
            Storage::Foreign(folder) => Some(folder),
            Storage::Server { .. } => None,
        }
    }

    /// Adds a PSP and one merchant of it.
    pub async fn add_psp(&self, psp_id: &str, merchant_id: &str) {
        let rows = format!(
            "INSERT INTO psps (id, name, settings, created_at, updated_at) VALUES ('{psp_id}', 'PSP', '{{}}', 0, 0);
             INSERT INTO merchants (id, psp_id, external_id, name, email, business_id, created_at, updated_at)
             VALUES ('{merchant_id}', '{psp_id}', 'm', 'Merchant', 'm@example.com', 'b', 0, 0)"
        );
        let connection = self.connect().await;
        connection.execute_unprepared(&rows).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Copies the database. Nothing may use it meanwhile.
    pub async fn copy(&self) -> Self {
        if let Storage::Server { server, name, .. } = &self.place {
            let copy = format!("test_{}", Ulid::generate()).to_lowercase();
            administer(server, &format!("CREATE DATABASE {copy} TEMPLATE {name}")).await.unwrap();
            let url = with_database(server, &copy).into();
            return Self { url, place: Storage::Server { server: server.clone(), name: copy, is_small: false } };
        }
        let folder = tempfile::tempdir().unwrap();
        copy_file(self.folder().unwrap(), folder.path());
        Self { url: sqlite_url(folder.path()), place: Storage::Folder(folder) }
    }

    /// Replaces the database by a copy of it. Nothing may use it meanwhile.
    pub async fn restore(&self, copy: Self) {
        if let (Storage::Server { server, name, .. }, Storage::Server { name: copy, .. }) = (&self.place, &copy.place) {
            administer(server, &format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
            administer(server, &format!("ALTER DATABASE {copy} RENAME TO {name}")).await.unwrap();
            return;
        }
        copy_file(copy.folder().unwrap(), self.folder().unwrap());
    }

    /// Opens a connection beside the service, to inspect or disturb the database.
    pub async fn connect(&self) -> DatabaseConnection {
        connect(&self.url).await.unwrap()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Storage::Server { server, name, .. } = &self.place else { return };
        // WITH (FORCE) ends the connections that are still open.
        let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let dropped = template::apart(administer(server, &statement));
        // A server that is gone has taken the database along; a test that fails says why itself.
        if let Err(error) = dropped {
            eprintln!("the test's database {name} stays: {error}");
        }
    }
}

/// Returns true if tests run on PostgreSQL.
pub fn chosen_postgres() -> bool {
    match std::env::var(DATABASE).as_deref() {
        Ok("postgres") => true,
        Ok("sqlite") | Err(_) => false,
        Ok(other) => panic!("{DATABASE} is {other:?}, expected sqlite or postgres"),
    }
}

/// The number that a query of PostgreSQL returns.
pub async fn number(connection: &impl ConnectionTrait, sql: &str) -> i64 {
    let row = connection.query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await.unwrap().unwrap();
    row.try_get_by_index(0).unwrap()
}

/// Returns the steps of the database's plan for a statement.
pub async fn query_plan(connection: &impl ConnectionTrait, mut statement: Statement) -> Vec<String> {
    let is_postgres = statement.db_backend == DbBackend::Postgres;
    let (explain, column) = if is_postgres { ("EXPLAIN", "QUERY PLAN") } else { ("EXPLAIN QUERY PLAN", "detail") };
    statement.sql = format!("{explain} {}", statement.sql);
    let steps = connection.query_all_raw(statement).await.unwrap();
    steps.iter().map(|step| step.try_get("", column).unwrap()).collect()
}

fn sqlite_url(folder: &Path) -> String {
    format!("sqlite://{}?mode=rwc", folder.join(SQLITE_FILE).display())
}

/// Copies the SQLite file. The last connection has removed its companion files.
fn copy_file(from: &Path, to: &Path) {
    assert!(!from.join(format!("{SQLITE_FILE}-wal")).exists() && !to.join(format!("{SQLITE_FILE}-wal")).exists());
    std::fs::copy(from.join(SQLITE_FILE), to.join(SQLITE_FILE)).unwrap();
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
    // As in the service: the driver's task for old connections can loop for ever.
    options.max_connections(1).sqlx_logging(false).idle_timeout(None).max_lifetime(None);
    sea_orm::Database::connect(options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_test_database_is_separate_and_removed_on_drop() {
        let (one, other) = (TestDatabase::create().await, TestDatabase::create().await);
        assert_ne!(one.url(), other.url());
        let connection = one.connect().await;
        connection.execute_unprepared("CREATE TABLE things (id INTEGER)").await.unwrap();
        assert!(other.connect().await.execute_unprepared("SELECT * FROM things").await.is_err());

        let (url, folder) = (one.url().to_owned(), one.folder().map(Path::to_owned));
        drop(one);
        match folder {
            Some(folder) => assert!(!folder.exists()),
            None => assert!(connect(&url).await.is_err(), "the database was dropped beside an open connection"),
        }
    }
}
