//! A pool of connections that is replaced when the server stops answering or accepting writes.
//!
//! The driver tests every connection that is returned to its pool, without a time limit. A connection that is returned
//! when the network falls silent never comes back and never makes room for another one, so waiting for the pool would not
//! end. A new pool starts with new connections; those of the old one end with their callers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sea_orm::{ConnAcquireErr, DatabaseConnection, DbErr, RuntimeErr};

use crate::failure::DatabaseFailure;

/// Time limit for an answer; `None` if the database always answers in time.
pub(crate) type Limit = Option<Duration>;

/// Creates a pool. It connects on first use.
type Create = Box<dyn Fn() -> DatabaseConnection + Send + Sync>;

/// A pool, and how to replace it.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    current: Mutex<Current>,
    create: Create,
    limit: Limit,
}

struct Current {
    pool: DatabaseConnection,
    /// Number of pools before this one.
    replaced: u64,
    /// Time of the last answer of this or an earlier pool.
    answered: Instant,
}

/// A use of the pool: one call, or all calls of one transaction.
#[derive(Debug)]
pub(crate) struct Call {
    of: Pool,
    /// The pool to use.
    pub(crate) pool: DatabaseConnection,
    replaced: u64,
    begun: Instant,
}

impl Pool {
    /// A pool that is never replaced, because its database always answers.
    pub(crate) fn lasting(pool: DatabaseConnection) -> Self {
        Self::new(None, move || pool.clone())
    }

    /// A pool whose calls have this time limit.
    pub(crate) fn new(limit: Limit, create: impl Fn() -> DatabaseConnection + Send + Sync + 'static) -> Self {
        let current = Mutex::new(Current { pool: create(), replaced: 0, answered: Instant::now() });
        Self(Arc::new(Shared { current, create: Box::new(create), limit }))
    }

    /// Replaces the pool. Calls in progress end with the old one.
    pub(crate) fn renew(&self) {
        let mut current = self.0.current.lock();
        current.pool = (self.0.create)();
        current.replaced += 1;
    }

    /// The current pool.
    pub(crate) fn now(&self) -> DatabaseConnection {
        self.0.current.lock().pool.clone()
    }

    /// Begins a use of the current pool.
    pub(crate) fn call(&self) -> Call {
        let current = self.0.current.lock();
        Call { of: self.clone(), pool: current.pool.clone(), replaced: current.replaced, begun: Instant::now() }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("limit", &self.0.limit).finish_non_exhaustive()
    }
}

impl Call {
    /// Does the work within the time limit. The pool is replaced if the answer is lost, if the server has become a standby,
    /// or if there was no connection and no other caller got an answer meanwhile.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
        let Some(limit) = self.of.0.limit else { return work.await };
        let Ok(result) = tokio::time::timeout(limit, work).await else {
            self.replace(|_| true);
            return Err(silent(limit));
        };
        match result.as_ref().err() {
            Some(error) if is_pool_timeout(error) => self.replace(|current| current.answered < self.begun),
            Some(error) if DatabaseFailure::is_standby(error) => self.replace(|_| true),
            _ => self.of.0.current.lock().answered = Instant::now(),
        }
        result
    }

    fn replace(&self, is_due: impl FnOnce(&Current) -> bool) {
        let mut current = self.of.0.current.lock();
        if current.replaced == self.replaced && is_due(&current) {
            current.pool = (self.of.0.create)();
            current.replaced += 1;
        }
    }
}

/// Does the work within this time limit.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silent(limit)))
}

fn silent(limit: Duration) -> DbErr {
    DbErr::Conn(RuntimeErr::Internal(format!("the database did not answer within {} s", limit.as_secs())))
}

fn is_pool_timeout(error: &DbErr) -> bool {
    match error {
        DbErr::ConnectionAcquire(ConnAcquireErr::Timeout) => true,
        DbErr::Conn(RuntimeErr::SqlxError(error)) | DbErr::Exec(RuntimeErr::SqlxError(error)) => {
            matches!(**error, sqlx::Error::PoolTimedOut)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sea_orm::{ConnectionTrait, SqlxSqliteConnector};
    use sqlx::sqlite::SqlitePoolOptions;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// A pool with one connection.
    fn pool() -> Pool {
        Pool::new(Some(LIMIT * 2), || {
            let options = SqlitePoolOptions::new().max_connections(1).acquire_timeout(LIMIT);
            SqlxSqliteConnector::from_sqlx_sqlite_pool(options.connect_lazy("sqlite::memory:").unwrap())
        })
    }

    async fn ask(pool: &Pool) -> Result<(), DbErr> {
        let call = pool.call();
        call.within(call.pool.execute_unprepared("SELECT 1")).await.map(drop)
    }

    fn replaced(pool: &Pool) -> u64 {
        pool.call().replaced
    }

    #[tokio::test]
    async fn a_pool_whose_connection_never_returns_is_replaced() {
        let pool = pool();
        ask(&pool).await.unwrap();
        let _stuck = pool.now().get_sqlite_connection_pool().acquire().await.unwrap();
        assert!(is_pool_timeout(&ask(&pool).await.unwrap_err()));
        ask(&pool).await.unwrap();
        assert_eq!(replaced(&pool), 1);
    }

    #[tokio::test]
    async fn a_busy_pool_is_not_replaced() {
        let pool = pool();
        let held = pool.now().get_sqlite_connection_pool().acquire().await.unwrap();
        let (waited, ()) = tokio::join!(ask(&pool), async {
            pool.call().within(std::future::ready(Ok(()))).await.unwrap();
        });
        assert!(is_pool_timeout(&waited.unwrap_err()));
        assert_eq!(replaced(&pool), 0);
        drop(held);
        ask(&pool).await.unwrap();
    }

    #[tokio::test]
    async fn a_pool_whose_answer_is_lost_is_replaced_once() {
        let pool = pool();
        let lost = async || pool.call().within(std::future::pending::<Result<(), DbErr>>()).await;
        let (first, second) = tokio::join!(lost(), lost());
        assert_eq!((first.is_err(), second.is_err(), replaced(&pool)), (true, true, 1));
        ask(&pool).await.unwrap();
    }
}
