//! Transactions whose statements are all known in advance: one round trip from begin to commit.
//!
//! With one statement at a time, the caller waits for each answer, and on a busy machine for a free processor, while
//! SQLite's only writer is idle. Not here: transactions that must read an answer before they continue
//! (`Database::begin`).

use std::sync::Arc;

use futures::TryStreamExt;
use sea_orm::sea_query::{ArrayType, ValueType};
use sea_orm::{DbBackend, DbErr, RuntimeErr, Value};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgDatabaseError, PgSeverity};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, Either, Error, Executor, Sqlite, query_with};

use crate::Database;

/// Statements of one transaction that do not depend on each other's answers. The texts are constant, so each is
/// prepared once.
#[derive(Clone, Debug)]
pub struct Batch {
    sql: Arc<str>,
    /// Number of statements, including `BEGIN` and `COMMIT` if they are separate statements.
    statements: usize,
    /// Number of statements without `BEGIN` and `COMMIT`.
    parts: usize,
}

/// Reason why a batch was not committed, or may not have been committed.
#[derive(Debug)]
pub enum NotCommitted {
    /// It was rolled back, or never started.
    RolledBack(DbErr),
    /// The commit was sent and failed, or there was no answer.
    Unknown(DbErr),
}

impl Batch {
    /// Creates a batch in the dialect of `backend`. On SQLite the statements run one after the other, and their `?`
    /// take the values in that order. On PostgreSQL they are parts of one statement: no part sees the writes of
    /// another, foreign keys are checked at the end, and `$1` and so on are shared by all parts.
    pub fn new(backend: DbBackend, statements: &[String]) -> Self {
        if backend == DbBackend::Sqlite {
            let sql = format!("BEGIN IMMEDIATE;\n{};\nCOMMIT", statements.join(";\n"));
            return Self { sql: sql.into(), statements: statements.len() + 2, parts: statements.len() };
        }
        let parts: Vec<_> = statements.iter().enumerate().map(|(n, part)| format!("part{n} AS ({part})")).collect();
        Self { sql: format!("WITH {} SELECT 1", parts.join(",\n")).into(), statements: 1, parts: 1 }
    }
}

impl Database {
    /// Runs and commits `batch` with `values`. If the future is dropped, the batch may or may not be committed; there
    /// is no other effect.
    pub async fn commit_in_one_statement(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let _turn = self.writer().turn().await.map_err(NotCommitted::RolledBack)?;
        self.writer().counter.within(batch.parts);
        self.writer().counter.committed();
        if self.backend() == DbBackend::Sqlite {
            self.commit_at_once_sqlite(batch, values).await
        } else {
            self.commit_at_once_postgres(batch, values).await
        }
    }

    async fn commit_at_once_postgres(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let arguments = postgres_arguments(values).map_err(NotCommitted::RolledBack)?;
        let call = self.writer().pool.call();
        // Acquire the connection before the answer's limit begins, so that the server gives up first.
        let acquired = async { call.pool.get_postgres_connection_pool().acquire().await.map_err(failed) };
        let mut connection = call.within(acquired).await.map_err(NotCommitted::RolledBack)?;
        let query = query_with(AssertSqlSafe(Arc::clone(&batch.sql)), arguments);
        let executed = async { connection.execute(query).await.map_err(failed) };
        match call.within(executed).await {
            Ok(_) => Ok(()),
            Err(error) if is_rolled_back(&error) => Err(NotCommitted::RolledBack(error)),
            Err(error) => Err(NotCommitted::Unknown(error)),
        }
    }

    async fn commit_at_once_sqlite(&self, batch: &Batch, values: Vec<Value>) -> Result<(), NotCommitted> {
        let rolled_back = |error| NotCommitted::RolledBack(failed(error));
        let arguments = sqlite_arguments(values).map_err(NotCommitted::RolledBack)?;
        let connection = self.writer().pool.now().get_sqlite_connection_pool().acquire().await.map_err(rolled_back)?;
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
                    // SQLite's thread has ended at an unknown statement.
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
        // If SQLite has already rolled back, this fails and the connection is replaced.
        lease.is_clean = !is_thread_gone && (done == 0 || lease.connection.execute("ROLLBACK").await.is_ok());
        if is_thread_gone || done + 1 == batch.statements {
            return Err(NotCommitted::Unknown(failed(error)));
        }
        Err(rolled_back(error))
    }
}

/// SQLite's write connection, for a transaction that the driver does not track. If it is returned before the
/// transaction has ended (the waiting future was dropped), it is closed, which rolls back.
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

/// SQLSTATEs after which the outcome of a statement is unknown, whatever their severity: connection errors (class 08),
/// which a proxy can report, and `statement_completion_unknown` (40003).
const POSTGRES_UNKNOWN: [&str; 2] = ["08", "40003"];

/// Returns true if PostgreSQL certainly did not commit: it reported that the statement failed. A report that the server
/// is shutting down does not count, because it can follow the commit.
fn is_rolled_back(error: &DbErr) -> bool {
    let DbErr::Exec(RuntimeErr::SqlxError(error)) = error else { return false };
    let of_server = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    of_server.is_some_and(|error| says_rolled_back(error.severity(), error.code()))
}

fn says_rolled_back(severity: PgSeverity, code: &str) -> bool {
    severity == PgSeverity::Error && !POSTGRES_UNKNOWN.iter().any(|unknown| code.starts_with(unknown))
}

/// Converts values to arguments. Supports the types of our tables: text, integers, booleans, and arrays of them without
/// NULL.
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
    <Vec<T> as ValueType>::try_from(value).map_err(|_| DbErr::Type("an array contains NULL, or is NULL".to_owned()))
}

fn foreign_kind() -> DbErr {
    DbErr::Type("unsupported value type: use text, a 64-bit integer or a boolean".to_owned())
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
mod tests {
    use std::time::Duration;

    use sea_orm::{ConnectionTrait, Statement};

    use super::*;
    use crate::DatabaseFailure;

    #[test]
    fn only_a_statement_error_from_the_server_means_rolled_back() {
        for code in ["23505", "40001", "40P01", "53100", "57014"] {
            assert!(says_rolled_back(PgSeverity::Error, code), "{code}");
            assert!(!says_rolled_back(PgSeverity::Fatal, code), "{code}");
        }
        // Reported by a pooler or another node whose own connection broke.
        for code in ["08000", "08006", "40003"] {
            assert!(!says_rolled_back(PgSeverity::Error, code), "{code}");
        }
        let never_sent = DbErr::Conn(RuntimeErr::Internal("the database did not answer within 4 s".to_owned()));
        assert!(!is_rolled_back(&never_sent));
    }

    /// Creates tables of owners and of owned things. An owner may be inserted after its things, but before the commit.
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

    /// Two things owned by `owner`, and an owner called `name`.
    fn values(first: i64, owner: &str, name: &str) -> Vec<Value> {
        vec![first.into(), owner.into(), (first + 1).into(), owner.into(), name.into()]
    }

    async fn count(database: &Database) -> i64 {
        let count = Statement::from_string(DbBackend::Sqlite, "SELECT COUNT(*) FROM things");
        database.reader().query_one_raw(count).await.unwrap().unwrap().try_get_by_index(0).unwrap()
    }

    #[tokio::test]
    async fn commits_everything_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        database.commit_in_one_statement(&batch, values(1, "a", "a")).await.unwrap();
        // In the first batch a thing already exists; in the second, the owner does.
        for values in [values(2, "b", "b"), values(3, "a", "a")] {
            let answer = database.commit_in_one_statement(&batch, values).await;
            let Err(NotCommitted::RolledBack(error)) = answer else { panic!("{answer:?}") };
            assert_eq!(DatabaseFailure::of(&error), DatabaseFailure::Request, "{error}");
            assert_eq!(count(&database).await, 2);
        }
        database.commit_in_one_statement(&batch, values(3, "b", "b")).await.unwrap();
        assert_eq!(count(&database).await, 4);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn counts_statements_and_commits_by_pool() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder).await;
        let before = database.counts();
        database.commit_in_one_statement(&batch(), values(1, "a", "a")).await.unwrap();
        let transaction = database.for_journal().begin().await.unwrap();
        for name in ["b", "c", "d"] {
            transaction.execute_unprepared(&format!("INSERT INTO owners VALUES ('{name}')")).await.unwrap();
        }
        transaction.commit().await.unwrap();
        database.for_journal().begin().await.unwrap().rollback().await.unwrap();
        count(&database).await;
        count(&database).await;
        database.writer().execute_unprepared("DELETE FROM owners WHERE name = 'd'").await.unwrap();
        database.writer().execute_unprepared("SELECT 1").await.unwrap();
        let made = database.counts().into_iter().zip(before);
        let made = made.map(|(now, old)| (now.pool, now.statements - old.statements, now.commits - old.commits));
        assert_eq!(made.collect::<Vec<_>>(), [("journal", 3, 1), ("writer", 4, 2), ("reader", 2, 0), ("api", 0, 0)]);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_commit_is_unknown_and_leaves_the_writer_usable() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        let answer = database.commit_in_one_statement(&batch, values(1, "nobody", "a")).await;
        assert!(matches!(answer, Err(NotCommitted::Unknown(_))), "{answer:?}");
        assert_eq!(count(&database).await, 0);
        let transaction = database.begin().await.unwrap();
        transaction.execute_unprepared("INSERT INTO owners VALUES ('a')").await.unwrap();
        transaction.commit().await.unwrap();
        database.commit_in_one_statement(&batch, values(1, "a", "b")).await.unwrap();
        assert_eq!(count(&database).await, 2);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn answers_that_end_early_leave_the_outcome_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        // Simulates a thread that ended before it reported the last statement.
        let longer = Batch { statements: batch.statements + 1, ..batch.clone() };
        let answer = database.commit_in_one_statement(&longer, values(1, "a", "a")).await;
        assert!(matches!(answer, Err(NotCommitted::Unknown(_))), "{answer:?}");
        database.commit_in_one_statement(&batch, values(3, "b", "b")).await.unwrap();
        assert_eq!(count(&database).await, 4);
        database.close().await.unwrap();
    }

    #[tokio::test]
    async fn an_unsupported_value_is_rejected_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder).await;
        let mut values = values(1, "a", "a");
        values[0] = 1.5_f64.into();
        let answer = database.commit_in_one_statement(&batch(), values).await;
        assert!(matches!(answer, Err(NotCommitted::RolledBack(DbErr::Type(_)))), "{answer:?}");
        database.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dropped_commit_leaves_no_open_transaction() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (open(&folder).await, batch());
        for round in 0..60 {
            let name = format!("owner{round}");
            let values = values(round * 2, &name, &name);
            // Covers the time from before the first statement to after the commit.
            let patience = Duration::from_micros(20 * round.unsigned_abs());
            let _ = tokio::time::timeout(patience, database.commit_in_one_statement(&batch, values)).await;
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
