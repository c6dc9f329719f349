//! Connections and transactions with time limits.
//!
//! SQLite needs none: its file is local, and its locks have their own limit. A server can stop answering while the
//! connection still looks open. Then every call here fails after `ANSWER_TIMEOUT` of `postgres`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, ExecResult, FromQueryResult,
    QueryResult, RuntimeErr, Statement, Value,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::counts::StatementCounter;
use crate::pool::{Call, Pool};

/// Limits how many callers can use a pool at once. The others wait outside, so that the queue of the pool stays short.
/// `None`: no limit.
pub(crate) type Turns = Option<Arc<Semaphore>>;

/// Time limit for entering the pool.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// A pool of connections whose calls have a time limit.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) pool: Pool,
    pub(crate) turns: Turns,
    pub(crate) counter: Arc<StatementCounter>,
}

impl Connection {
    /// Waits for permission to use the pool. The permission lasts as long as the returned value.
    pub(crate) async fn turn(&self) -> Result<Option<OwnedSemaphorePermit>, DbErr> {
        let Some(turns) = &self.turns else { return Ok(None) };
        let turn = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(turns).acquire_owned()).await;
        turn.map(Result::ok).map_err(|_| {
            let busy = format!("the database is busy: no free slot within {} s", TURN_TIMEOUT.as_secs());
            DbErr::Conn(RuntimeErr::Internal(busy))
        })
    }

    async fn ask<T>(&self, work: impl AsyncFnOnce(&DatabaseConnection) -> Result<T, DbErr>) -> Result<T, DbErr> {
        let _turn = self.turn().await?;
        let call = self.pool.call();
        call.within(work(&call.pool)).await
    }
}

/// A transaction whose calls have a time limit. It is rolled back when dropped.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) inner: DatabaseTransaction,
    /// `None`: no time limit.
    pub(crate) call: Option<Call>,
    pub(crate) counter: Arc<StatementCounter>,
    pub(crate) _turn: Option<OwnedSemaphorePermit>,
}

impl Transaction {
    /// Commits. After an error, the transaction may still have been committed.
    pub async fn commit(self) -> Result<(), DbErr> {
        let Self { inner, call, counter, _turn } = self;
        counter.committed();
        within(call.as_ref(), inner.commit()).await
    }

    /// Rolls back.
    pub async fn rollback(self) -> Result<(), DbErr> {
        let Self { inner, call, _turn, .. } = self;
        within(call.as_ref(), inner.rollback()).await
    }

    async fn ask<T>(&self, work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
        self.counter.within(1);
        within(self.call.as_ref(), work).await
    }
}

/// Reads all rows of a query that is written as SQL.
pub async fn query_all(
    connection: &impl ConnectionTrait,
    sql: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<QueryResult>, DbErr> {
    let statement = Statement::from_sql_and_values(connection.get_database_backend(), sql, values);
    connection.query_all_raw(statement).await
}

/// Like [`query_all`], converts each row by its column names.
pub async fn find_all<M: FromQueryResult>(
    connection: &impl ConnectionTrait,
    sql: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<M>, DbErr> {
    query_all(connection, sql, values).await?.iter().map(|row| M::from_query_result(row, "")).collect()
}

async fn within<T>(call: Option<&Call>, work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    match call {
        Some(call) => call.within(work).await,
        None => work.await,
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Connection {
    fn get_database_backend(&self) -> DbBackend {
        ConnectionTrait::get_database_backend(&self.pool.now())
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        self.counter.alone(&statement.sql);
        self.ask(async |pool| pool.execute_raw(statement).await).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.counter.alone(sql);
        self.ask(async |pool| pool.execute_unprepared(sql).await).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        self.counter.alone(&statement.sql);
        self.ask(async |pool| pool.query_one_raw(statement).await).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        self.counter.alone(&statement.sql);
        self.ask(async |pool| pool.query_all_raw(statement).await).await
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Transaction {
    fn get_database_backend(&self) -> DbBackend {
        self.inner.get_database_backend()
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        self.ask(self.inner.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.ask(self.inner.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        self.ask(self.inner.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        self.ask(self.inner.query_all_raw(statement)).await
    }
}
