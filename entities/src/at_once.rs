//! Transactions that are known whole beforehand: one way to the database and back, from their beginning to their commit.
//!
//! Whoever takes a statement at a time waits for each answer, and on a busy machine for a processor on either side of it,
//! while the one writer of SQLite has nothing to do. Deliberately absent: whatever has to look at an answer before it goes
//! on (`Database::begin`).

use std::sync::Arc;

use futures::TryStreamExt;
use sea_orm::sea_query::{ArrayType, ValueType};
use sea_orm::sqlx::pool::PoolConnection;
use sea_orm::sqlx::postgres::{PgArguments, PgDatabaseError, PgSeverity};
use sea_orm::sqlx::sqlite::SqliteArguments;
use sea_orm::sqlx::{Arguments, AssertSqlSafe, Either, Error, Executor, Sqlite, query_with};
use sea_orm::{DbBackend, DbErr, RuntimeErr, Value};

use crate::Database;
use crate::connection::within;

/// Statements that make one transaction and need nothing of each other's answers. Constant texts: each is prepared once.
#[derive(Clone, Debug)]
pub struct Batch {
    sql: Arc<str>,
    /// With `BEGIN` and `COMMIT`, where these are statements.
    statements: usize,
}

/// Why a batch was not committed, or is not known to be.
#[derive(Debug)]
pub enum NotCommitted {
    /// It was rolled back, or never begun.
    RolledBack(DbErr),
    /// The commit was sent and failed, or nothing came back.
    Unknown(DbErr),
}

impl Batch {
    /// In the dialect of `backend`. On SQLite the statements run one after the other, and their `?` take the values in that
    /// order; on PostgreSQL they are parts of one statement (none sees what another writes, foreign keys are looked at when
    /// all have ended), and `$1` and on are of all of them.
    pub fn new(backend: DbBackend, statements: &[String]) -> Self {
        if backend == DbBackend::Sqlite {
            let sql = format!("BEGIN IMMEDIATE;\n{};\nCOMMIT", statements.join(";\n"));
            return Self { sql: sql.into(), statements: statements.len() + 2 };
        }
        let parts: Vec<_> = statements.iter().enumerate().map(|(n, part)| format!("part{n} AS ({part})")).collect();
        Self { sql: format!("WITH {} SELECT 1", parts.join(",\n")).into(), statements: 1 }
    }

    /// What the database is sent.
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

impl Database {
    /// Runs `batch` over `values` and commits it. Dropping the future leaves open whether it was committed, and nothing else.
    pub async fn commit_at_once(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let _turn = self.writer().turn().await.map_err(NotCommitted::RolledBack)?;
        if self.backend() == DbBackend::Sqlite {
            self.commit_at_once_sqlite(batch, values).await
        } else {
            self.commit_at_once_postgres(batch, values).await
        }
    }

    async fn commit_at_once_postgres(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let rolled_back = |error| NotCommitted::RolledBack(failed(error));
        let arguments = postgres_arguments(values).map_err(NotCommitted::RolledBack)?;
        // By itself: what is sent has all of the time for an answer, so that the server gives it up before this side does.
        let mut connection = self.writer().pool.get_postgres_connection_pool().acquire().await.map_err(rolled_back)?;
        let query = query_with(AssertSqlSafe(Arc::clone(&batch.sql)), arguments);
        let executed = async { connection.execute(query).await.map_err(failed) };
        match within(self.writer().limit, executed).await {
            Ok(_) => Ok(()),
            Err(error) if is_rolled_back(&error) => Err(NotCommitted::RolledBack(error)),
            Err(error) => Err(NotCommitted::Unknown(error)),
        }
    }

    async fn commit_at_once_sqlite(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let rolled_back = |error| NotCommitted::RolledBack(failed(error));
        let arguments = sqlite_arguments(values).map_err(NotCommitted::RolledBack)?;
        let connection = self.writer().pool.get_sqlite_connection_pool().acquire().await.map_err(rolled_back)?;
        let mut lease = Lease { connection, is_clean: false };
        let mut done = 0;
        let result = {
            let query = query_with(AssertSqlSafe(Arc::clone(&batch.sql)), arguments);
            let mut steps = lease.connection.fetch_many(query);
            loop {
                match steps.try_next().await {
                    Ok(Some(Either::Left(_))) => done += 1,
                    Ok(Some(Either::Right(_))) => {}
                    Ok(None) if done == batch.statements => break Ok(()),
                    // SQLite's thread has ended, and nobody knows how far it came.
                    Ok(None) => break Err(Error::WorkerCrashed),
                    Err(error) => break Err(error),
                }
            }
        };
        let Err(error) = result else {
            lease.is_clean = true;
            return Ok(());
        };
        let is_thread_gone = matches!(error, Error::WorkerCrashed);
        // Where SQLite has rolled back by itself this fails, and the connection is replaced.
        lease.is_clean = !is_thread_gone && (done == 0 || lease.connection.execute("ROLLBACK").await.is_ok());
        if is_thread_gone || done + 1 == batch.statements {
            return Err(NotCommitted::Unknown(failed(error)));
        }
        Err(rolled_back(error))
    }
}

/// SQLite's writing connection for a transaction that the driver knows nothing of. One that is given back before it has
/// ended (whoever waited was dropped) is closed, which rolls back.
struct Lease {
    connection: PoolConnection<Sqlite>,
    is_clean: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_clean {
            self.connection.close_on_drop();
        }
    }
}

fn failed(error: Error) -> DbErr {
    DbErr::Exec(RuntimeErr::SqlxError(Arc::new(error)))
}

/// SQLSTATEs with which it is not known what became of a statement, however the server calls them: a connection that broke
/// somewhere behind whoever says so (class 08), and the one that is about just that.
const POSTGRES_UNKNOWN: [&str; 2] = ["08", "40003"];

/// Whether it is certain that PostgreSQL has not committed what it was sent: it says that the statement failed (and not that
/// the server ends, which it may say after the commit).
fn is_rolled_back(error: &DbErr) -> bool {
    let DbErr::Exec(RuntimeErr::SqlxError(error)) = error else { return false };
    let of_server = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    of_server.is_some_and(|error| says_rolled_back(error.severity(), error.code()))
}

fn says_rolled_back(severity: PgSeverity, code: &str) -> bool {
    severity == PgSeverity::Error && !POSTGRES_UNKNOWN.iter().any(|unknown| code.starts_with(unknown))
}

/// Of the kinds that rows here are made of: texts, numbers and bits, and arrays of them without NULL.
fn postgres_arguments(values: Vec<Value>) -> Result<PgArguments, DbErr> {
    let mut arguments = PgArguments::default();
    arguments.reserve(values.len(), 0);
    for value in values {
        let added = match value {
            Value::String(text) => arguments.add(text),
            Value::BigInt(number) => arguments.add(number),
            Value::Bool(bit) => arguments.add(bit),
            Value::Array(ArrayType::String, _) => arguments.add(array::<String>(value)?),
            Value::Array(ArrayType::BigInt, _) => arguments.add(array::<i64>(value)?),
            Value::Array(ArrayType::Bool, _) => arguments.add(array::<bool>(value)?),
            _ => return Err(foreign_kind()),
        };
        added.map_err(|error| DbErr::Type(error.to_string()))?;
    }
    Ok(arguments)
}

fn array<T>(value: Value) -> Result<Vec<T>, DbErr>
where
    Vec<T>: ValueType,
{
    <Vec<T> as ValueType>::try_from(value)
        .map_err(|_| DbErr::Type("an array with a NULL in it, or without all".to_owned()))
}

fn foreign_kind() -> DbErr {
    DbErr::Type("a value of a kind that no table here has".to_owned())
}

fn sqlite_arguments(values: Vec<Value>) -> Result<SqliteArguments, DbErr> {
    let mut arguments = SqliteArguments::default();
    arguments.reserve(values.len(), 0);
    for value in values {
        let added = match value {
            Value::String(text) => arguments.add(text),
            Value::BigInt(number) => arguments.add(number),
            Value::Bool(bit) => arguments.add(bit),
            _ => return Err(foreign_kind()),
        };
        added.map_err(|error| DbErr::Type(error.to_string()))?;
    }
    Ok(arguments)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use sea_orm::{ConnectionTrait, Statement};

    use super::*;
    use crate::Failure;

    #[test]
    fn only_the_server_s_word_about_the_statement_says_that_it_was_rolled_back() {
        for code in ["23505", "40001", "40P01", "53100", "57014"] {
            assert!(says_rolled_back(PgSeverity::Error, code), "{code}");
            assert!(!says_rolled_back(PgSeverity::Fatal, code), "{code}");
        }
        // Relayed by a pooler, or by one node of several, whose own link broke.
        for code in ["08000", "08006", "40003"] {
            assert!(!says_rolled_back(PgSeverity::Error, code), "{code}");
        }
        let never_sent = DbErr::Conn(RuntimeErr::Internal("the database did not answer within 4 s".to_owned()));
        assert!(!is_rolled_back(&never_sent));
    }

    /// Owners, and things that are owned; an owner may come after its things, but not after the commit.
    async fn open(folder: &tempfile::TempDir) -> Database {
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let database = Database::open(&url).await.unwrap();
        let tables = "CREATE TABLE owners (name TEXT PRIMARY KEY);
             CREATE TABLE things (id INTEGER PRIMARY KEY,
                 owner TEXT REFERENCES owners (name) DEFERRABLE INITIALLY DEFERRED)";
        database.writer().execute_unprepared(tables).await.unwrap();
        database
    }

    fn batch() -> Batch {
        let statements = ["INSERT INTO things VALUES (?, ?), (?, ?)", "INSERT INTO owners VALUES (?)"];
        Batch::new(DbBackend::Sqlite, &statements.map(str::to_owned))
    }

    /// Two things of `owner`, who is called `name`.
    fn values(first: i64, owner: &str, name: &str) -> Vec<Value> {
        vec![first.into(), owner.into(), (first + 1).into(), owner.into(), name.into()]
    }

    async fn count(database: &Database) -> i64 {
        let count = Statement::from_string(DbBackend::Sqlite, "SELECT COUNT(*) FROM things");
        database.reader().query_one_raw(count).await.unwrap().unwrap().try_get_by_index(0).unwrap()
    }

    #[tokio::test]
    async fn all_of_it_is_committed_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        database.commit_at_once(&batch, values(1, "a", "a")).await.unwrap();
        // A thing is there already; the owner is.
        for values in [values(2, "b", "b"), values(3, "a", "a")] {
            let answer = database.commit_at_once(&batch, values).await;
            let Err(NotCommitted::RolledBack(error)) = answer else { panic!("{answer:?}") };
            assert_eq!(Failure::of(&error), Failure::Request, "{error}");
            assert_eq!(count(&database).await, 2);
        }
        database.commit_at_once(&batch, values(3, "b", "b")).await.unwrap();
        assert_eq!(count(&database).await, 4);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_commit_that_fails_is_unknown_and_leaves_the_writer_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        let answer = database.commit_at_once(&batch, values(1, "nobody", "a")).await;
        assert!(matches!(answer, Err(NotCommitted::Unknown(_))), "{answer:?}");
        assert_eq!(count(&database).await, 0);
        let transaction = database.begin().await.unwrap();
        transaction.execute_unprepared("INSERT INTO owners VALUES ('a')").await.unwrap();
        transaction.commit().await.unwrap();
        database.commit_at_once(&batch, values(1, "a", "b")).await.unwrap();
        assert_eq!(count(&database).await, 2);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn answers_that_end_too_early_say_nothing_of_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        // As from a thread that ended before it told of the last statement.
        let longer = Batch { statements: batch.statements + 1, ..batch.clone() };
        let answer = database.commit_at_once(&longer, values(1, "a", "a")).await;
        assert!(matches!(answer, Err(NotCommitted::Unknown(_))), "{answer:?}");
        database.commit_at_once(&batch, values(3, "b", "b")).await.unwrap();
        assert_eq!(count(&database).await, 4);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_value_of_a_foreign_kind_is_refused_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder).await;
        let mut values = values(1, "a", "a");
        values[0] = 1.5_f64.into();
        let answer = database.commit_at_once(&batch(), values).await;
        assert!(matches!(answer, Err(NotCommitted::RolledBack(DbErr::Type(_)))), "{answer:?}");
        database.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_stops_waiting_leaves_no_transaction_open() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        for round in 0..60 {
            let name = format!("owner{round}");
            let values = values(round * 2, &name, &name);
            // From before the first statement to after the commit.
            let patience = Duration::from_micros(20 * round.unsigned_abs());
            let _ = tokio::time::timeout(patience, database.commit_at_once(&batch, values)).await;
            let alone = format!("INSERT INTO owners VALUES ('alone{round}')");
            database.writer().execute_unprepared(&alone).await.unwrap();
            // A reader sees only what is committed.
            let seen = Statement::from_string(
                DbBackend::Sqlite,
                format!("SELECT COUNT(*) FROM owners WHERE name = 'alone{round}'"),
            );
            let seen: i64 = database.reader().query_one_raw(seen).await.unwrap().unwrap().try_get_by_index(0).unwrap();
            assert_eq!((seen, count(&database).await % 2), (1, 0), "after round {round}");
        }
        database.close().await.unwrap();
    }
}
