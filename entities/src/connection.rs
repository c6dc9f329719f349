//! Connections and transactions that answer in time.
//!
//! SQLite answers by itself: its file is here, and its locks have a limit of their own. A server may fall silent, with
//! the connection still open as far as this side can tell; then every call here ends with an error after
//! `ANSWER_TIMEOUT` of `postgres`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr,
    Statement,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long to wait for an answer; `None`: it comes in time by itself.
pub(crate) type Limit = Option<Duration>;

/// How many callers may be at a pool at once, the rest waiting outside, so that others find a short queue there; `None`:
/// any number.
pub(crate) type Turns = Option<Arc<Semaphore>>;

/// How long to wait for one's turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// A pool of connections, each call on which ends in time.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) pool: DatabaseConnection,
    pub(crate) limit: Limit,
    pub(crate) turns: Turns,
}

impl Connection {
    /// Waits for the turn to use the pool; it lasts as long as what is answered is kept.
    pub(crate) async fn turn(&self) -> Result<Option<OwnedSemaphorePermit>, DbErr> {
        let Some(turns) = &self.turns else { return Ok(None) };
        let turn = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(turns).acquire_owned()).await;
        turn.map(Result::ok).map_err(|_| {
            let busy = format!("too many wait for the database: no turn within {} s", TURN_TIMEOUT.as_secs());
            DbErr::Conn(RuntimeErr::Internal(busy))
        })
    }
}

/// A transaction, each call on which ends in time. Rolled back when it is dropped.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) inner: DatabaseTransaction,
    pub(crate) limit: Limit,
    pub(crate) _turn: Option<OwnedSemaphorePermit>,
}

impl Transaction {
    /// Commits. After an error it may have been committed all the same.
    pub async fn commit(self) -> Result<(), DbErr> {
        within(self.limit, self.inner.commit()).await
    }

    /// Rolls back.
    pub async fn rollback(self) -> Result<(), DbErr> {
        within(self.limit, self.inner.rollback()).await
    }
}

pub(crate) async fn within<T>(limit: Limit, work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    let Some(limit) = limit else { return work.await };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let silent = format!("the database did not answer within {} s", limit.as_secs());
        Err(DbErr::Conn(RuntimeErr::Internal(silent)))
    })
}

#[async_trait::async_trait]
impl ConnectionTrait for Connection {
    fn get_database_backend(&self) -> DbBackend {
        ConnectionTrait::get_database_backend(&self.pool)
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        let _turn = self.turn().await?;
        within(self.limit, self.pool.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let _turn = self.turn().await?;
        within(self.limit, self.pool.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        let _turn = self.turn().await?;
        within(self.limit, self.pool.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let _turn = self.turn().await?;
        within(self.limit, self.pool.query_all_raw(statement)).await
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Transaction {
    fn get_database_backend(&self) -> DbBackend {
        self.inner.get_database_backend()
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        within(self.limit, self.inner.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        within(self.limit, self.inner.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        within(self.limit, self.inner.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        within(self.limit, self.inner.query_all_raw(statement)).await
    }
}
