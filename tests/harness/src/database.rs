//! Databases for tests: each has one of its own, of SQLite in a folder or on a PostgreSQL server, gone with the test.
//!
//! Which of the two is the environment's choice, so that the same tests run on both; see [`TestDatabase::create`]. A database
//! has today's tables from the start: it is a copy of a template ([`template`]). The service's own migration then finds nothing to do.

mod template;
mod trouble;

use std::path::{Path, PathBuf};

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr};
use tempfile::TempDir;
use ulid::Ulid;
use url::Url;

pub use trouble::{CommitsFail, Filled, Held, Lock, TableAway};

/// The variable that names the database to test on: `sqlite` (also when it is not set) or `postgres`.
pub const DATABASE: &str = "PAYFERRY_TEST_DATABASE";
/// The variable that names a PostgreSQL server, as `postgres://user@host:port`: `tests/with-postgres` sets it.
pub const POSTGRES: &str = "PAYFERRY_TEST_POSTGRES";
/// A tablespace of the server that has little room and only one user.
const SMALL_TABLESPACE: &str = "small";
const SQLITE_FILE: &str = "payferry.db";

/// A database that nothing else uses, without rows, removed when this is dropped.
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Folder(TempDir),
    /// Somebody else's folder.
    Foreign(PathBuf),
    Server {
        server: Url,
        name: String,
        /// On the disk that can be filled.
        is_small: bool,
    },
}

impl TestDatabase {
    /// Of the kind that `PAYFERRY_TEST_DATABASE` names.
    pub async fn create() -> Self {
        if chosen_postgres() { Self::postgres().await } else { Self::sqlite() }
    }

    /// The same without tables: for tests of migrations.
    pub async fn empty() -> Self {
        if chosen_postgres() {
            return Self::empty_postgres().await;
        }
        let folder = tempfile::tempdir().unwrap();
        Self { url: sqlite_url(folder.path()), place: Place::Folder(folder) }
    }

    /// On the PostgreSQL server, whatever is chosen, and without tables.
    pub async fn empty_postgres() -> Self {
        Self::on_server(false, false).await
    }

    /// On the PostgreSQL server that `PAYFERRY_TEST_POSTGRES` names, whatever is chosen.
    pub async fn postgres() -> Self {
        Self::on_server(false, true).await
    }

    async fn on_server(is_small: bool, has_tables: bool) -> Self {
        let Ok(server) = std::env::var(POSTGRES) else {
            panic!(
                "this test needs a PostgreSQL server: run it as `tests/with-postgres cargo test ...`, \
                 or name one in {POSTGRES} (postgres://user@host:port)"
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
        Self { url, place: Place::Server { server, name, is_small } }
    }

    /// A SQLite file, whatever is chosen: for tests of what only files do.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        template::apart(template::copy_sqlite(&folder.path().join(SQLITE_FILE)));
        Self { url: sqlite_url(folder.path()), place: Place::Folder(folder) }
    }

    /// A SQLite file, yet to be made, in a folder that is not this one's to remove.
    pub fn sqlite_in(folder: &Path) -> Self {
        Self { url: sqlite_url(folder), place: Place::Foreign(folder.to_owned()) }
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
        self.folder().map(|folder| folder.join(SQLITE_FILE))
    }

    /// The folder of SQLite's file, where the files beside it are, too.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(folder) => Some(folder.path()),
            Place::Foreign(folder) => Some(folder),
            Place::Server { .. } => None,
        }
    }

    /// A connection past the service, to look or to stand in its way.
    pub async fn connect(&self) -> DatabaseConnection {
        connect(&self.url).await.unwrap()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Place::Server { server, name, .. } = &self.place else { return };
        // WITH (FORCE) ends the connections that are still open.
        let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let dropped = template::apart(administer(server, &statement));
        // A server that is gone has taken the database along; a test that fails says why itself.
        if let Err(error) = dropped {
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

fn sqlite_url(folder: &Path) -> String {
    format!("sqlite://{}?mode=rwc", folder.join(SQLITE_FILE).display())
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
