//! Ensures that a service that runs alone is the only one that writes the journal of a PostgreSQL database, and that nodes
//! that share the database exclude it.
//!
//! The journal has one connection of its own, and a connection takes a session-level advisory lock before its first use.
//! The session that writes therefore holds the lock: a service that loses the lock has lost the connection, and its next
//! connection must take the lock again before it can write. If another service holds it then, this service never writes
//! again. Nodes share the lock; the leases (`payferry-nodes`) say which of them does what. Each node also has a lock of its
//! own, so that at most one of its sessions writes. Not here: SQLite's lock of its file (`hold`), and commands beside a running service, which need no lock.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use sea_orm::{DbErr, RuntimeErr};
use sqlx::{Error, PgConnection, query_as, query_scalar};
use tokio::sync::watch;

use crate::Database;
use crate::connection::Connection;

/// Key of the lock: "payferry" in ASCII. PostgreSQL keeps advisory locks of each database apart.
const KEY: i64 = 0x7061_7966_6572_7279;
/// First key of the locks of nodes; the second is a hash of the session's name.
const NODES: i32 = 7_302;
/// Pause between two checks that this service still holds the lock.
pub const LOCK_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// SQLSTATE of a lock that was not released within the server's `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// Sessions that hold the lock. PostgreSQL shows the name and the address only to the same role and to superusers.
const HOLDERS: &str = "SELECT holder.pid, coalesce(session.application_name, ''), \
    coalesce(host(session.client_addr), 'a socket') \
    FROM pg_locks holder LEFT JOIN pg_stat_activity session ON session.pid = holder.pid \
    WHERE holder.locktype = 'advisory' AND holder.granted AND holder.objsubid = 1 \
    AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND holder.classid::bigint = $1 >> 32 AND holder.objid::bigint = $1 & 4294967295";
/// How a service uses the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// No other service may use it.
    Alone,
    /// Other nodes may use it.
    Shared,
}

/// Ends all other sessions with a name, except those whose commit waits for a synchronous standby: such a commit would
/// become visible without being on the standby, and what follows from it could be lost.
const END_EARLIER: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid() \
    AND wait_event IS DISTINCT FROM 'SyncRep'";

/// State of the lock, as seen by this service.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LockState {
    /// Not taken yet; the service that holds it, if known.
    Wanted(Option<String>),
    /// Taken by the current connection or an earlier one.
    Taken,
    /// Lost for good, and why.
    Lost(String),
}

/// PostgreSQL's settings that determine whether an acknowledged commit can be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSettings {
    /// `synchronous_commit`.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`; empty without a synchronous standby.
    pub synchronous_standby_names: String,
}

/// The lock of one opened database.
#[derive(Debug)]
pub(crate) struct WriterLock {
    /// Name of the journal's sessions, by which this service recognises its own.
    session: String,
    sharing: Sharing,
    state: watch::Sender<LockState>,
}

impl WriterLock {
    /// Creates the lock, which is not taken. `application` names the service in the sessions.
    pub(crate) fn new(application: &str, sharing: Sharing) -> Self {
        let random = RandomState::new().hash_one(std::process::id());
        // PostgreSQL cuts longer names.
        let application: String = application.chars().take(30).collect();
        Self {
            session: format!("{application} journal {random:016x}"),
            sharing,
            state: watch::Sender::new(LockState::Wanted(None)),
        }
    }

    /// Name of the journal's sessions.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Takes the lock for the session of a new connection, which must not be used if this fails.
    pub(crate) async fn take(&self, connection: &mut PgConnection) -> Result<(), Error> {
        if let LockState::Lost(why) = &*self.state.borrow() {
            return Err(Error::Protocol(why.clone()));
        }
        match self.wait_for_lock(connection).await {
            Ok(()) => {
                self.state.send_replace(LockState::Taken);
                Ok(())
            }
            Err(Error::Database(error)) if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => {
                Err(Error::Protocol(self.held_elsewhere(connection).await?))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for the lock, at most for the server's `lock_timeout`. Ends earlier sessions of this service first: after a
    /// silent network, the server does not know that they have no client any more.
    async fn wait_for_lock(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let (tried, waiting) = match self.sharing {
            Sharing::Alone => ("SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_lock($1)"),
            Sharing::Shared => {
                sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(KEY).execute(&mut *connection).await?;
                let own = "SELECT pg_try_advisory_lock($1, hashtext($2))";
                if query_scalar(own).bind(NODES).bind(&self.session).fetch_one(&mut *connection).await? {
                    return Ok(());
                }
                sqlx::query(END_EARLIER).bind(&self.session).execute(&mut *connection).await?;
                let own = "SELECT pg_advisory_lock($1, hashtext($2))";
                return sqlx::query(own).bind(NODES).bind(&self.session).execute(connection).await.map(drop);
            }
        };
        if query_scalar(tried).bind(KEY).fetch_one(&mut *connection).await? {
            return Ok(());
        }
        sqlx::query(END_EARLIER).bind(&self.session).execute(&mut *connection).await?;
        sqlx::query(waiting).bind(KEY).execute(&mut *connection).await.map(drop)
    }

    /// Records that another session holds the lock; returns a description. An earlier session of this service that has
    /// not ended yet is not another service.
    async fn held_elsewhere(&self, connection: &mut PgConnection) -> Result<String, Error> {
        // Only a service that runs alone excludes a node.
        let mode = if self.sharing == Sharing::Shared { "AND holder.mode = 'ExclusiveLock'" } else { "" };
        let sql = format!("{HOLDERS} {mode}");
        let holders: Vec<(i32, String, String)> =
            query_as(sqlx::AssertSqlSafe(sql)).bind(KEY).fetch_all(connection).await?;
        let Some((pid, application, client)) =
            holders.into_iter().find(|(_, application, _)| *application != self.session)
        else {
            return Ok("an earlier connection of this service still holds the journal's lock".to_owned());
        };
        let holder = format!(
            "another running service uses the database: process {pid} of the server, application `{application}`, from {client}"
        );
        self.state.send_modify(|state| {
            *state = match state {
                LockState::Wanted(_) => LockState::Wanted(Some(holder.clone())),
                LockState::Taken | LockState::Lost(_) => LockState::Lost(holder.clone()),
            }
        });
        Ok(holder)
    }

    /// Records that the lock was lost, because a pooler gave its session to another connection.
    fn record_pooler(&self) {
        let why =
            "the session that writes the journal lost its lock: a pooler in front of PostgreSQL must use session mode";
        self.state.send_replace(LockState::Lost(why.to_owned()));
    }
}

impl Database {
    /// Takes the lock, if the database is PostgreSQL. Returns the service that holds it instead, if one does.
    pub(crate) async fn take_writer_lock(&self) -> Result<Option<String>, DbErr> {
        let Some((journal, lock)) = &self.journal else { return Ok(None) };
        let taken = holds_lock(journal).await;
        match (&*lock.state.borrow(), taken) {
            (_, Ok(true)) => Ok(None),
            (LockState::Wanted(Some(holder)) | LockState::Lost(holder), _) => Ok(Some(holder.clone())),
            (_, Ok(false)) => Err(DbErr::Custom(
                "a pooler in front of PostgreSQL must use session mode: a lock did not stay".to_owned(),
            )),
            (_, Err(error)) => Err(error),
        }
    }

    /// Waits until this service must not write any more, and returns why: another service has the lock of the journal, or
    /// the sessions of the database do not keep locks. Never ends for SQLite.
    pub async fn writer_lost(&self) -> String {
        let Some((journal, lock)) = &self.journal else { return std::future::pending().await };
        let mut state = lock.state.subscribe();
        let watched = async {
            let lost = state.wait_for(|state| matches!(state, LockState::Lost(_))).await.map(|state| state.clone());
            match lost {
                Ok(LockState::Lost(why)) => why,
                _ => std::future::pending().await,
            }
        };
        // An idle journal would not notice that its connection broke, and another service could start meanwhile.
        let checked = async {
            loop {
                tokio::time::sleep(LOCK_CHECK_PAUSE).await;
                if let Ok(false) = holds_lock(journal).await {
                    lock.record_pooler();
                }
            }
        };
        tokio::select! {
            why = watched => why,
            () = checked => std::future::pending().await,
        }
    }

    /// Settings of commits in the sessions of the journal; `None` for SQLite. Takes no lock.
    pub async fn commit_settings(&self) -> Result<Option<CommitSettings>, DbErr> {
        if self.journal.is_none() {
            return Ok(None);
        }
        let pool = self.writer().pool.now();
        let (synchronous_commit, synchronous_standby_names) =
            query_as("SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')")
                .fetch_one(pool.get_postgres_connection_pool())
                .await
                .map_err(failed)?;
        Ok(Some(CommitSettings { synchronous_commit, synchronous_standby_names }))
    }
}

/// Returns true if the session of the journal's connection holds the lock. A broken connection is replaced first.
async fn holds_lock(journal: &Connection) -> Result<bool, DbErr> {
    let call = journal.pool.call();
    let held = async {
        let mut connection = call.pool.get_postgres_connection_pool().acquire().await.map_err(failed)?;
        let sql = format!("SELECT EXISTS ({HOLDERS} AND holder.pid = pg_backend_pid())");
        query_scalar(sqlx::AssertSqlSafe(sql)).bind(KEY).fetch_one(&mut *connection).await.map_err(failed)
    };
    call.within(held).await
}

fn failed(error: Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(std::sync::Arc::new(error)))
}
