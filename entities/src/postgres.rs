//! Pools of connections to a PostgreSQL server that may be slow, silent, restarted or gone.
//!
//! Whatever is wrong with it is an error within seconds, and as soon as it is back, connections are made anew: nobody has
//! to restart anything.

use std::time::Duration;

use sea_orm::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sea_orm::sqlx::{AssertSqlSafe, ConnectOptions, Connection, Error, Executor, PgConnection};
use sea_orm::{DatabaseConnection, DbErr, RuntimeErr, SqlxPostgresConnector};

/// Connections that read.
pub const READERS_MAX: u32 = 8;
/// Connections that read for visitors.
pub const VISITORS_MAX: u32 = 12;
/// Connections that write. Apart from the readers, so that no crowd of them keeps the journal waiting.
pub const WRITERS_MAX: u32 = 8;
/// Writers that visitors may have at once.
pub const VISITORS_WRITING_MAX: usize = 4;
/// How long to wait for a free connection, or a new one.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for an answer before the server counts as silent. Longer than the server gives a statement, so that
/// it comes first with its own word while it can speak.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the server lets a statement run.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after an answer was lost, or not waited for any more, what was sent may still be committed: as long as the server
/// runs it, and a while to begin.
pub const LATE_COMMIT_MAX: Duration = Duration::from_secs(4);
/// How long the server lets a statement wait for somebody else's lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server keeps a transaction whose client says nothing: one that is cut off holds its locks no longer.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(4);
/// A connection that was idle this long is tried before it is used: the server may have gone or come again meanwhile.
const TRIED_AFTER_IDLE: Duration = Duration::from_secs(1);
/// How long a connection has to answer when it is tried.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections without limits: migrations and sweeping.
const PATIENT_MAX: u32 = 1;

/// The server and database that a URL names.
#[derive(Debug)]
pub(crate) struct Server(PgConnectOptions);

impl Server {
    /// Reads `url`, and makes sure that there is a database which answers.
    pub(crate) async fn reach(url: &str) -> Result<Self, DbErr> {
        let options: PgConnectOptions = url.parse().map_err(|error| unreachable("the URL", &error))?;
        let server = Self(options.disable_statement_logging());
        // Once without a pool, which would only tell that it waited in vain.
        match tokio::time::timeout(ACQUIRE_TIMEOUT, server.0.connect()).await {
            Ok(Ok(connection)) => {
                let _ = connection.close().await;
                Ok(server)
            }
            Ok(Err(error)) => Err(unreachable(&server.name(), &error)),
            Err(_) => Err(unreachable(&server.name(), &Error::PoolTimedOut)),
        }
    }

    /// Where it is, for people: no user, no password.
    fn name(&self) -> String {
        let database = self.0.get_database().unwrap_or("the user's own");
        format!("PostgreSQL at {}:{}, database {database}", self.0.get_host(), self.0.get_port())
    }

    /// Connections on which everything has a limit.
    pub(crate) fn pool(&self, connections_max: u32) -> DatabaseConnection {
        let options = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // Instead of a trial before every use.
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
            // The pool tries what comes back as well, without a limit: one whose server fell silent would never be
            // replaced.
            .after_release(|connection, _| Box::pin(async move { try_out(connection).await.map(|()| true) }));
        SqlxPostgresConnector::from_sqlx_postgres_pool(options.connect_lazy_with(self.0.clone()))
    }

    /// Connections without limits, made when they are first used.
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
    let silent = || Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server is silent"));
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
