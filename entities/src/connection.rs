//! Connections and transactions that answer in time.
//!
//! SQLite answers by itself: its file is here, and its locks have a limit of their own. A server may fall silent, with
//! the connection still open as far as this side can tell; then every call here ends with an error after
//! `ANSWER_TIMEOUT` of `postgres`.

use std::future::Future;
use std::time::Duration;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr,
    Statement,
};

/// How long to wait for an answer; `None`: it comes in time by itself.
pub(crate) type Limit = Option<Duration>;

/// A pool of connections, each call on which ends in time.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) pool: DatabaseConnection,
    pub(crate) limit: Limit,
}

/// A transaction, each call on which ends in time. Rolled back when it is dropped.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) transaction: DatabaseTransaction,
    pub(crate) limit: Limit,
}

impl Transaction {
    /// Commits. After an error it may have been committed all the same.
    pub async fn commit(self) -> Result<(), DbErr> {
        within(self.limit, self.transaction.commit()).await
    }

    /// Rolls back.
    pub async fn rollback(self) -> Result<(), DbErr> {
        within(self.limit, self.transaction.rollback()).await
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
        within(self.limit, self.pool.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        within(self.limit, self.pool.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        within(self.limit, self.pool.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        within(self.limit, self.pool.query_all_raw(statement)).await
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Transaction {
    fn get_database_backend(&self) -> DbBackend {
        self.transaction.get_database_backend()
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        within(self.limit, self.transaction.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        within(self.limit, self.transaction.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        within(self.limit, self.transaction.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        within(self.limit, self.transaction.query_all_raw(statement)).await
    }
}
