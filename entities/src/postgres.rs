//! Connection pools for a PostgreSQL server that may be slow, silent, restarted, or unavailable.
//!
//! Every problem leads to an error within seconds. As soon as the server is back, new connections are made; no restart
//! is necessary.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use sea_orm::{DatabaseConnection, DbErr, RuntimeErr, SqlxPostgresConnector};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Error, Executor, PgConnection, PgPool};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::pool::Pool;
use crate::primary::Servers;
use crate::writer_lock::WriterLock;

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
/// Name of the service in the sessions of the server, unless the URL has another one.
const APPLICATION: &str = "payferry";
/// Connections without time limits, for migrations and sweeping.
const PATIENT_MAX: u32 = 1;
/// Variable that sets `sslmode` for every URL that does not (as in libpq).
const SSL_MODE_VARIABLE: &str = "PGSSLMODE";

/// A connection to a server on another machine that does not verify the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeakTls {
    /// Host of the server.
    pub host: String,
    /// Value of `sslmode`.
    pub mode: &'static str,
    /// True if the connection may be unencrypted.
    pub may_be_plain: bool,
}

impl WeakTls {
    /// Returns the weakness of a database URL, or `None` if there is none: `sslmode=verify-full`, a database on this
    /// machine, or SQLite.
    pub fn of(url: &str) -> Result<Option<Self>, DbErr> {
        if url.starts_with("sqlite:") {
            return Ok(None);
        }
        Ok(Self::of_options(&options(url)?))
    }

    fn of_options(options: &PgConnectOptions) -> Option<Self> {
        let (mode, may_be_plain) = match options.get_ssl_mode() {
            _ if is_local(options) => return None,
            PgSslMode::VerifyFull => return None,
            PgSslMode::Disable => ("disable", true),
            PgSslMode::Allow => ("allow", true),
            PgSslMode::Prefer => ("prefer", true),
            PgSslMode::Require => ("require", false),
            PgSslMode::VerifyCa => ("verify-ca", false),
        };
        Some(Self { host: options.get_host().to_owned(), mode, may_be_plain })
    }
}

impl fmt::Display for WeakTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weakness = match (self.may_be_plain, self.mode) {
            (true, _) => "the connection may be unencrypted",
            (false, "verify-ca") => "the server's name is not verified",
            (false, _) => "the server's certificate is not verified",
        };
        write!(f, "PostgreSQL at {} with sslmode={}: {weakness}; use sslmode=verify-full", self.host, self.mode)
    }
}

/// Parses a URL. Unless `sslmode` says otherwise, a connection to another machine verifies the server, and one within this
/// machine is encrypted only if the server refuses anything else.
pub fn options(url: &str) -> Result<PgConnectOptions, DbErr> {
    let invalid = |error: Error| DbErr::Conn(RuntimeErr::Internal(format!("the URL: {error}")));
    let options: PgConnectOptions = url.parse().map_err(invalid)?;
    let is_set = |url: Url| url.query_pairs().any(|(key, _)| key == "sslmode" || key == "ssl-mode");
    let has_mode = Url::parse(url).is_ok_and(is_set) || std::env::var_os(SSL_MODE_VARIABLE).is_some();
    let default = if is_local(&options) { PgSslMode::Allow } else { PgSslMode::VerifyFull };
    Ok(if has_mode { options } else { options.ssl_mode(default) })
}

/// Returns true if the server is on this machine.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host().trim_matches(['[', ']']);
    options.get_socket().is_some()
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The server that accepts writes, of those that replicate each other.
#[derive(Clone, Debug)]
pub(crate) struct Primary(Arc<Servers>);

impl Primary {
    /// Parses the URLs of servers that replicate each other, and finds the primary.
    pub(crate) async fn reach(urls: &[impl AsRef<str>]) -> Result<Self, DbErr> {
        let mut all = Vec::new();
        for url in urls {
            let options = options(url.as_ref())?;
            if let Some(weak) = WeakTls::of_options(&options) {
                tracing::warn!("{weak}");
            }
            all.push(options.disable_statement_logging());
        }
        Servers::find(all).await.map(Self).map_err(|reason| DbErr::Conn(RuntimeErr::Internal(reason)))
    }

    /// Replaces these pools whenever another server has become the primary.
    pub(crate) fn follow(&self, pools: Vec<Pool>) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(Arc::clone(&self.0).follow(pools)))
    }

    /// Name of the service in the sessions of the server.
    pub(crate) fn application(&self) -> String {
        self.0.primary().get_application_name().unwrap_or(APPLICATION).to_owned()
    }

    /// Creates a pool with time limits.
    pub(crate) fn pool(&self, connections_max: u32) -> Pool {
        let servers = Arc::clone(&self.0);
        let create =
            move || to_primary(&servers, limited(connections_max), None, |connection| limit(connection).boxed());
        Pool::new(Some(ANSWER_TIMEOUT), create)
    }

    /// Creates the pool of the journal: one connection with time limits, whose session holds the lock.
    pub(crate) fn journal_pool(&self, lock: &Arc<WriterLock>) -> Pool {
        let (servers, lock) = (Arc::clone(&self.0), Arc::clone(lock));
        Pool::new(Some(ANSWER_TIMEOUT), move || {
            let taken = Arc::clone(&lock);
            to_primary(&servers, limited(1), Some(lock.session()), move |connection| {
                let lock = Arc::clone(&taken);
                async move {
                    limit(connection).await?;
                    lock.take(connection).await
                }
                .boxed()
            })
        })
    }

    /// Creates a pool of one connection with time limits, whose commits do not wait for a standby.
    pub(crate) fn unreplicated_pool(&self) -> Pool {
        let servers = Arc::clone(&self.0);
        Pool::new(Some(ANSWER_TIMEOUT), move || {
            to_primary(&servers, limited(1), None, |connection| {
                async move {
                    limit(connection).await?;
                    connection.execute("SET synchronous_commit = local").await.map(drop)
                }
                .boxed()
            })
        })
    }

    /// Creates a pool of one connection for a listener of notifications.
    pub(crate) fn listener_pool(&self) -> PgPool {
        let pool = to_primary(&self.0, lasting(1), None, |_| ready(Ok(())).boxed());
        pool.get_postgres_connection_pool().clone()
    }

    /// Creates a pool without time limits. It connects on first use.
    pub(crate) fn patient_pool(&self) -> Pool {
        let servers = Arc::clone(&self.0);
        Pool::new(None, move || to_primary(&servers, lasting(PATIENT_MAX), None, |_| ready(Ok(())).boxed()))
    }
}

/// Creates a pool of connections to the primary. `begin` runs on each new connection, which must not be used if it fails.
fn to_primary(
    servers: &Arc<Servers>,
    options: PgPoolOptions,
    session: Option<&str>,
    begin: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<(), Error>> + Send + Sync + 'static,
) -> DatabaseConnection {
    let (servers, begin) = (Arc::clone(servers), Arc::new(begin));
    let mut primary = servers.primary();
    if let Some(session) = session {
        primary = primary.application_name(session);
    }
    let options = options.after_connect(move |connection, _| {
        let (servers, begin) = (Arc::clone(&servers), Arc::clone(&begin));
        Box::pin(async move {
            servers.accept(connection).await?;
            begin(connection).await
        })
    });
    SqlxPostgresConnector::from_sqlx_postgres_pool(options.connect_lazy_with(primary))
}

/// Options of a pool whose connections are not closed because of their age or because they are idle. The driver (sqlx 0.9)
/// does that in a task that repeats its work as often as the pool has idle connections. Their count is below zero for a
/// moment when a connection is taken while it is being returned. Read in that moment, it is a number so large that the
/// task does not end, and it occupies a thread of the runtime.
fn lasting(connections_max: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Options of a pool with time limits.
fn limited(connections_max: u32) -> PgPoolOptions {
    lasting(connections_max)
        // Replaced by the test of idle connections below.
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for >= TRIED_AFTER_IDLE {
                    try_out(connection).await?;
                }
                Ok(true)
            })
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_pool_has_the_drivers_task_that_can_loop_for_ever() {
        let primary = Primary(Arc::new(Servers::new(vec![options("postgres://ferry@localhost/ferry").unwrap()])));
        for pool in [primary.pool(2), primary.patient_pool()] {
            let options = pool.now().get_postgres_connection_pool().options().clone();
            assert_eq!((options.get_idle_timeout(), options.get_max_lifetime()), (None, None));
        }
    }

    #[test]
    fn a_server_on_another_machine_is_verified_unless_the_url_says_otherwise() {
        let mode = |url: &str| WeakTls::of(url).unwrap().map(|weak| (weak.mode, weak.may_be_plain));
        for (url, expected) in [
            ("postgres://ferry:hunter2@db.example/ferry", None),
            ("postgres://ferry@db.example/ferry?sslmode=verify-full&sslrootcert=/etc/root.pem", None),
            ("postgres://ferry@db.example/ferry?sslmode=verify-ca", Some(("verify-ca", false))),
            ("postgres://ferry@10.0.0.7/ferry?ssl-mode=require", Some(("require", false))),
            ("postgres://ferry@[2001:db8::7]/ferry?sslmode=prefer", Some(("prefer", true))),
            ("postgres://ferry@db.example/ferry?sslmode=allow", Some(("allow", true))),
            ("postgres://ferry@db.example/ferry?sslmode=disable", Some(("disable", true))),
            ("postgres://ferry@localhost/ferry", None),
            ("postgres://ferry@127.0.0.1/ferry?sslmode=disable", None),
            ("postgres://ferry@[::1]/ferry", None),
            ("postgres://ferry@db.example/ferry?host=/run/postgresql", None),
            ("sqlite://payferry.db?mode=rwc", None),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
        let is_full = |url: &str| matches!(options(url).unwrap().get_ssl_mode(), PgSslMode::VerifyFull);
        assert!(is_full("postgres://ferry@db.example/ferry"));
        assert!(!is_full("postgres://ferry@localhost/ferry"), "a local server may have no certificate");
        assert!(!is_full("postgres://ferry@db.example/ferry?sslmode=require"));
        let told = WeakTls::of("postgres://ferry:hunter2@db.example/ferry?sslmode=require").unwrap().unwrap();
        assert_eq!(
            told.to_string(),
            "PostgreSQL at db.example with sslmode=require: the server's certificate is not verified; use \
             sslmode=verify-full"
        );
    }
}
