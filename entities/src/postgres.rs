//! Connection pools for a PostgreSQL server that may be slow, silent, restarted, or unavailable.
//!
//! Every problem leads to an error within seconds. As soon as the server is back, new connections are made; no restart
//! is necessary.

use std::time::Duration;

use sea_orm::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sea_orm::sqlx::{AssertSqlSafe, ConnectOptions, Connection, Error, Executor, PgConnection};
use sea_orm::{DatabaseConnection, DbErr, RuntimeErr, SqlxPostgresConnector};

/// Read connections.
pub const READERS_MAX: u32 = 8;
/// Read connections for API requests.
pub const API_CALLS_MAX: u32 = 12;
/// Write connections. Separate from the read connections, so that readers do not delay the journal.
pub const WRITERS_MAX: u32 = 8;
/// Write connections that API requests can use at once.
pub const API_WRITES_MAX: usize = 4;
/// Time limit for a free or new connection.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for an answer. Longer than the statement timeout of the server, so that the server reports its own error
/// first if it can.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Statement timeout of the server.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after a lost answer within which a sent statement may still be committed: the statement timeout plus time to
/// start.
pub const LATE_COMMIT_MAX: Duration = Duration::from_secs(4);
/// Time limit of the server for waiting for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which the server ends an idle transaction. A disconnected client holds its locks no longer than this.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle time after which a connection is tested before use, because the server may have stopped or restarted.
const TRIED_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Time limit of that test.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections without time limits, for migrations and sweeping.
const PATIENT_MAX: u32 = 1;

/// Server and database of a URL.
#[derive(Debug)]
pub(crate) struct Server(PgConnectOptions);

impl Server {
    /// Parses `url` and checks that the database answers.
    pub(crate) async fn reach(url: &str) -> Result<Self, DbErr> {
        let options: PgConnectOptions = url.parse().map_err(|error| unreachable("the URL", &error))?;
        let server = Self(options.disable_statement_logging());
        // Connect once without a pool, because the pool would report only a timeout.
        match tokio::time::timeout(ACQUIRE_TIMEOUT, server.0.connect()).await {
            Ok(Ok(connection)) => {
                let _ = connection.close().await;
                Ok(server)
            }
            Ok(Err(error)) => Err(unreachable(&server.name(), &error)),
            Err(_) => Err(unreachable(&server.name(), &Error::PoolTimedOut)),
        }
    }

    /// Location for error messages, without user and password.
    fn name(&self) -> String {
        let database = self.0.get_database().unwrap_or("(default)");
        format!("PostgreSQL at {}:{}, database {database}", self.0.get_host(), self.0.get_port())
    }

    /// Creates a pool with time limits.
    pub(crate) fn pool(&self, connections_max: u32) -> DatabaseConnection {
        let options = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // Replaced by the test of idle connections below.
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(limit(connection)))
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for >= TRIED_AFTER_IDLE {
                        try_out(connection).await?;
                    }
                    Ok(true)
                })
            })
            // The pool also tests returned connections, but without a time limit: a connection to a silent server would
            // never be replaced.
            .after_release(|connection, _| Box::pin(async move { try_out(connection).await.map(|()| true) }));
        SqlxPostgresConnector::from_sqlx_postgres_pool(options.connect_lazy_with(self.0.clone()))
    }

    /// Creates a pool without time limits. It connects on first use.
    pub(crate) fn patient_pool(&self) -> DatabaseConnection {
        let options = PgPoolOptions::new().max_connections(PATIENT_MAX).acquire_timeout(ACQUIRE_TIMEOUT);
        SqlxPostgresConnector::from_sqlx_postgres_pool(options.connect_lazy_with(self.0.clone()))
    }
}

async fn limit(connection: &mut PgConnection) -> Result<(), Error> {
    let settings = [
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("lock_timeout", LOCK_TIMEOUT),
        ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_TIMEOUT),
    ];
    let settings = settings.map(|(name, value)| format!("SET {name} = {}", value.as_millis())).join("; ");
    connection.execute(AssertSqlSafe(settings)).await.map(|_| ())
}

async fn try_out(connection: &mut PgConnection) -> Result<(), Error> {
    let silent = || Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server does not answer"));
    tokio::time::timeout(TRIAL_TIMEOUT, connection.ping()).await.unwrap_or_else(|_| Err(silent()))
}

fn unreachable(what: &str, error: &Error) -> DbErr {
    let why = match error {
        Error::PoolTimedOut => format!("no answer within {} s", ACQUIRE_TIMEOUT.as_secs()),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    DbErr::Conn(RuntimeErr::Internal(format!("{what}: {why}")))
}
