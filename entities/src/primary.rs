//! The PostgreSQL server that accepts writes, of several that replicate each other.
//!
//! After a failover, another server is the primary. A server is used if it is not in recovery and its timeline is not lower
//! than any timeline seen before: each promotion starts a higher one, so an old primary that returns is not used. Every new
//! connection is checked. If there are several servers, each is also asked every second, and the pools are replaced when
//! another one has become the primary. Not here: the promotion itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, Error, PgConnection, query_scalar};

use crate::pool::Pool;

/// Time limit for an answer about the state of a server, including a new connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two questions to each server.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// The timeline of a primary; NULL for a standby.
const TIMELINE: &str = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN \
    ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END";

/// Servers of one replicated database, one of which is the primary.
#[derive(Debug)]
pub(crate) struct Servers {
    state: Mutex<State>,
    /// Highest timeline seen.
    timeline: AtomicI64,
}

#[derive(Debug)]
struct State {
    all: Vec<PgConnectOptions>,
    /// Index of the primary.
    primary: usize,
}

/// A server and the connection by which it was asked last.
struct Probe {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl Servers {
    /// Finds the primary. The error names the reason of each server.
    pub(crate) async fn find(all: Vec<PgConnectOptions>) -> Result<Arc<Self>, String> {
        let mut probes: Vec<_> = all.iter().map(|server| Probe { options: server.clone(), connection: None }).collect();
        let servers = Self::new(all);
        let asked = servers.ask(&mut probes).await;
        if asked.iter().any(Result::is_ok) {
            return Ok(Arc::new(servers));
        }
        let reasons = probes.iter().zip(asked).map(|(probe, asked)| {
            let reason = asked.map_or_else(|error| words(&error), |_| String::new());
            format!("{}: {reason}", name(&probe.options))
        });
        Err(reasons.collect::<Vec<_>>().join("; "))
    }

    /// Takes the first server for the primary until it is asked.
    pub(crate) fn new(all: Vec<PgConnectOptions>) -> Self {
        Self { state: Mutex::new(State { all, primary: 0 }), timeline: AtomicI64::new(0) }
    }

    /// Options of connections to the primary.
    pub(crate) fn primary(&self) -> PgConnectOptions {
        let state = self.state.lock();
        state.all[state.primary].clone()
    }

    /// Checks that a new connection leads to the primary.
    pub(crate) async fn accept(&self, connection: &mut PgConnection) -> Result<(), Error> {
        self.admit(timeline(connection).await?)
    }

    fn admit(&self, timeline: i64) -> Result<(), Error> {
        let newest = self.timeline.fetch_max(timeline, Ordering::SeqCst);
        if timeline < newest {
            let old =
                format!("it is an old primary: its timeline is {timeline}, and that of another primary is {newest}");
            return Err(Error::Protocol(old));
        }
        Ok(())
    }

    /// Replaces the pools whenever another server has become the primary. Ends at once if there is only one server.
    pub(crate) async fn follow(self: Arc<Self>, pools: Vec<Pool>) {
        let all = self.state.lock().all.clone();
        if all.len() == 1 {
            return;
        }
        let mut probes: Vec<_> = all.into_iter().map(|options| Probe { options, connection: None }).collect();
        loop {
            tokio::time::sleep(PROBE_PAUSE).await;
            let before = self.primary();
            self.ask(&mut probes).await;
            let after = self.primary();
            if (before.get_host(), before.get_port()) != (after.get_host(), after.get_port()) {
                tracing::warn!("the primary of the database has changed from {} to {}", name(&before), name(&after));
                pools.iter().for_each(Pool::renew);
            }
        }
    }

    /// Asks every server for its timeline, and chooses the primary. Keeps the last choice if no server is a primary.
    async fn ask(&self, probes: &mut [Probe]) -> Vec<Result<i64, Error>> {
        let asked = join_all(probes.iter_mut().map(Probe::timeline)).await;
        let primaries = asked.iter().enumerate().filter_map(|(index, asked)| Some((*asked.as_ref().ok()?, index)));
        // Of equal timelines the first server, so that the choice does not change.
        let newest = primaries.max_by_key(|(timeline, index)| (*timeline, std::cmp::Reverse(*index)));
        if let Some((timeline, primary)) = newest
            && self.admit(timeline).is_ok()
        {
            let mut state = self.state.lock();
            state.all[primary] = probes[primary].options.clone();
            state.primary = primary;
        }
        asked
    }
}

impl Probe {
    async fn timeline(&mut self) -> Result<i64, Error> {
        let mut connection = self.connection.take();
        let asked = async {
            let connection = match &mut connection {
                Some(connection) => connection,
                None => connection.insert(self.connect().await?),
            };
            timeline(connection).await
        };
        let timeline = tokio::time::timeout(PROBE_TIMEOUT, asked).await.map_err(|_| Error::PoolTimedOut)??;
        self.connection = connection;
        Ok(timeline)
    }

    /// Connects without a pool, because the pool would report only a timeout.
    async fn connect(&mut self) -> Result<PgConnection, Error> {
        match self.options.connect().await {
            // The driver never encrypts with `allow`, which means: only if the server refuses anything else.
            Err(Error::Database(_)) if matches!(self.options.get_ssl_mode(), PgSslMode::Allow) => {
                let encrypted = self.options.clone().ssl_mode(PgSslMode::Require);
                let connection = encrypted.connect().await?;
                self.options = encrypted;
                Ok(connection)
            }
            connected => connected,
        }
    }
}

/// Returns the timeline of a primary. A standby is an error.
async fn timeline(connection: &mut PgConnection) -> Result<i64, Error> {
    let timeline: Option<i64> = query_scalar(TIMELINE).fetch_one(connection).await?;
    timeline.ok_or_else(|| Error::Protocol("it is a standby, which accepts no writes".to_owned()))
}

/// Location for messages, without user and password.
fn name(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or("(default)");
    format!("PostgreSQL at {}:{}, database {database}", options.get_host(), options.get_port())
}

fn words(error: &Error) -> String {
    match error {
        Error::PoolTimedOut => format!("no answer within {} s", PROBE_TIMEOUT.as_secs()),
        Error::Io(error) => error.to_string(),
        Error::Protocol(reason) => reason.clone(),
        other => other.to_string(),
    }
}
