//! Disturbances for other users of a database: locks, a missing table, failing commits, and a full disk.

use std::io::Write;
use std::path::PathBuf;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, SqliteTransactionMode, Statement,
    TransactionOptions, TransactionTrait,
};

use super::{SMALL_TABLESPACE, Storage, TestDatabase};

/// Operations that a lock blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Writes; reads continue.
    Writes,
    /// Reads and writes on PostgreSQL. On SQLite reads cannot be blocked, so it blocks writes only.
    Everything,
}

/// A held lock. Dropping it releases it soon, not at once.
#[derive(Debug)]
pub struct Held(DatabaseTransaction);

impl Held {
    /// Releases the lock.
    pub async fn release(self) {
        self.0.rollback().await.unwrap();
    }
}

/// A disturbance that lasts until it is ended: a table that is renamed away, failing commits, a full disk.
#[derive(Debug)]
pub struct DatabaseFault {
    connection: DatabaseConnection,
    ends: Vec<String>,
    /// File that fills the disk.
    filler: Option<PathBuf>,
}

impl DatabaseFault {
    /// Renames a table in the database at this URL while the database keeps running. The end restores it.
    pub async fn table_away(url: &str, table: &str) -> Self {
        let connection = super::connect(url).await.unwrap();
        let begins = [format!("ALTER TABLE {table} RENAME TO {table}_away")];
        Self::begin(connection, &begins, vec![format!("ALTER TABLE {table}_away RENAME TO {table}")]).await
    }

    async fn begin(connection: DatabaseConnection, begins: &[String], ends: Vec<String>) -> Self {
        execute_each(&connection, begins).await;
        Self { connection, ends, filler: None }
    }

    /// Ends it.
    pub async fn end(self) {
        execute_each(&self.connection, &self.ends).await;
        if let Some(filler) = self.filler {
            std::fs::remove_file(filler).unwrap();
        }
    }
}

async fn execute_each(connection: &DatabaseConnection, statements: &[String]) {
    for statement in statements {
        connection.execute_unprepared(statement).await.unwrap();
    }
}

impl TestDatabase {
    /// Locks the database until the lock is released.
    pub async fn lock(&self, lock: Lock) -> Held {
        let connection = self.connect().await;
        let mode = (!self.is_postgres()).then_some(SqliteTransactionMode::Exclusive);
        let options = TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() };
        loop {
            let transaction = connection.begin_with_options(options).await.unwrap();
            if !self.is_postgres() {
                return Held(transaction);
            }
            let tables = "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = 'public'";
            let tables = transaction.query_one_raw(Statement::from_string(DbBackend::Postgres, tables)).await.unwrap();
            let tables: String = tables.unwrap().try_get_by_index(0).unwrap();
            let mode = match lock {
                Lock::Writes => "EXCLUSIVE",
                Lock::Everything => "ACCESS EXCLUSIVE",
            };
            // The transaction may lose a deadlock with active transactions; it is retried then.
            if transaction.execute_unprepared(&format!("LOCK TABLE {tables} IN {mode} MODE")).await.is_ok() {
                return Held(transaction);
            }
            transaction.rollback().await.unwrap();
        }
    }

    /// Makes every commit that changes a row of this table fail after its statements succeeded: each inserts a row that
    /// violates a deferred foreign key. The error leaves it open to the client if the commit took effect. (It did not.)
    pub async fn fail_commits(&self, table: &'static str) -> DatabaseFault {
        let connection = self.connect().await;
        let owe = "INSERT INTO troubles VALUES ('nobody')";
        let holder = "holder TEXT REFERENCES trouble_holders (id) DEFERRABLE INITIALLY DEFERRED";
        let mut begins = vec![
            "CREATE TABLE trouble_holders (id TEXT PRIMARY KEY)".to_owned(),
            format!("CREATE TABLE troubles ({holder})"),
        ];
        let mut ends = Vec::new();
        if self.is_postgres() {
            begins.push(format!(
                "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {owe}; RETURN NULL; END $$"
            ));
            begins.push(format!(
                "CREATE TRIGGER trouble AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION trouble()"
            ));
            ends.push(format!("DROP TRIGGER trouble ON {table}"));
            ends.push("DROP FUNCTION trouble()".to_owned());
        } else {
            for change in ["insert", "update"] {
                begins.push(format!("CREATE TRIGGER trouble_{change} AFTER {change} ON {table} BEGIN {owe}; END"));
                ends.push(format!("DROP TRIGGER trouble_{change}"));
            }
        }
        ends.push("DROP TABLE troubles".to_owned());
        ends.push("DROP TABLE trouble_holders".to_owned());
        DatabaseFault::begin(connection, &begins, ends).await
    }

    /// Fills the disk below SQLite's folder, or the tablespace `small`. Without a small disk, a trigger reports the
    /// server's error for a full disk.
    pub async fn fill(&self) -> DatabaseFault {
        let connection = self.connect().await;
        let (ends, filler) = match &self.place {
            Storage::Folder(_) | Storage::Foreign(_) => {
                // Otherwise writes would still fit into the existing WAL file.
                connection.execute_unprepared("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
                let path = self.file().unwrap().with_file_name("filler");
                let mut file = std::fs::File::create(&path).unwrap();
                let full = (0..).find_map(|_| file.write_all(&[0; 1_024]).err()).unwrap();
                assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
                (None, Some(path))
            }
            Storage::Server { is_small: true, .. } => {
                let table = "CREATE TABLE filler (text TEXT) WITH (autovacuum_enabled = false);
                             ALTER TABLE filler ALTER COLUMN text SET STORAGE PLAIN";
                connection.execute_unprepared(table).await.unwrap();
                let rows = "INSERT INTO filler SELECT repeat('x', 6000) FROM generate_series(1, 100000)";
                let full = connection.execute_unprepared(rows).await.unwrap_err().to_string();
                assert!(full.contains("No space left on device"), "{full}");
                (Some("DROP TABLE filler"), None)
            }
            Storage::Server { is_small: false, .. } => {
                let trigger = "CREATE OR REPLACE FUNCTION filler() RETURNS trigger LANGUAGE plpgsql AS
                                 $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$;
                               CREATE TRIGGER filler BEFORE INSERT OR UPDATE ON payments
                                 FOR EACH ROW EXECUTE FUNCTION filler()";
                connection.execute_unprepared(trigger).await.unwrap();
                (Some("DROP TRIGGER filler ON payments"), None)
            }
        };
        DatabaseFault { connection, ends: ends.into_iter().map(str::to_owned).collect(), filler }
    }

    /// Creates a database on the server, in the small tablespace if there is one. `tests/with-postgres` creates that
    /// tablespace where the system permits it.
    pub async fn on_small_tablespace() -> Self {
        let anywhere = Self::postgres().await;
        let small = format!("SELECT 1 FROM pg_tablespace WHERE spcname = '{SMALL_TABLESPACE}'");
        let small = Statement::from_string(DbBackend::Postgres, small);
        if anywhere.connect().await.query_one_raw(small).await.unwrap().is_none() {
            println!("the server has no tablespace {SMALL_TABLESPACE}: a trigger reports the full disk instead");
            return anywhere;
        }
        Self::on_server(true, true).await
    }
}
