//! Heartbeats of this node, and the expiry of other nodes.
//!
//! They have a thread and a connection of their own, so that a busy runtime or a full pool delays none. A node may declare
//! another one gone if, by its own monotonic clock, it has seen the other's heartbeat unchanged for [`LEASE_TTL`] and its
//! own heartbeats were steady for that long. So after an outage of the database no node expires another, and no wall clock
//! is compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use payferry_domain::NodeId;
use payferry_entities::{Connection, Database};
use sea_orm::{DbErr, QueryResult};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{metrics, statements};

/// Time without heartbeats after which another node may take over.
pub const LEASE_TTL: Duration = Duration::from_secs(6);
/// Interval of heartbeats.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one heartbeat.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// Heartbeats are steady while none fails, and none is later than this after the one before.
const STEADY_GAP: Duration = Duration::from_secs(2);

/// Offset of the clock above which a warning is logged.
const CLOCK_OFFSET_WARNED_MS: i64 = 1_000;

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum NodeState {
    /// It claims leases and does its first read.
    Joining,
    /// It answers requests.
    Ready,
    /// It hands its leases over and then ends.
    Draining,
    /// It has ended, or another node has declared it gone.
    Gone,
}

/// A node that shares the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id, new at every start.
    pub id: NodeId,
    /// Name from the configuration.
    pub name: String,
    /// Version of Payferry.
    pub version: String,
    /// Digest of the settings that must be the same on all nodes.
    pub config_digest: String,
    /// URL of the public listener.
    pub api_url: String,
    /// URL of the operator's listener.
    pub operator_url: String,
    /// State.
    pub state: NodeState,
    /// Last heartbeat, in milliseconds since the epoch, by the clock of the database server.
    pub seen_at: i64,
    /// Time of the join, likewise.
    pub joined_at: i64,
    /// Clock of the node's machine minus the clock of the database server, in milliseconds.
    pub clock_offset_ms: i64,
    /// True if an operator has asked it to drain.
    pub drain_requested: bool,
}

impl Member {
    fn of(row: &QueryResult) -> Result<Self, DbErr> {
        let text = |column: &str| row.try_get::<String>("", column);
        let unreadable = |what: &str| DbErr::Type(format!("a node's {what}"));
        Ok(Self {
            id: text("id")?.parse().map_err(|_| unreadable("id"))?,
            name: text("name")?,
            version: text("version")?,
            config_digest: text("config_digest")?,
            api_url: text("api_url")?,
            operator_url: text("operator_url")?,
            state: text("state")?.parse().map_err(|_| unreadable("state"))?,
            seen_at: row.try_get("", "seen_at")?,
            joined_at: row.try_get("", "joined_at")?,
            clock_offset_ms: row.try_get("", "clock_offset_ms")?,
            drain_requested: row.try_get("", "drain_requested")?,
        })
    }
}

/// Reads the nodes that are not gone.
pub(crate) async fn members(connection: &impl sea_orm::ConnectionTrait) -> Result<Vec<Member>, DbErr> {
    statements::run(connection, &statements::members(), []).await?.iter().map(Member::of).collect()
}

/// Heartbeats of one node, on a thread that ends with this value.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    stop: CancellationToken,
    /// Start of the last heartbeat that reached the database.
    beaten_at: Arc<Mutex<Instant>>,
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Receivers of the heartbeats' results.
pub(crate) struct HeartbeatChannels {
    /// State to report.
    pub(crate) state: watch::Sender<NodeState>,
    /// Nodes that are not gone.
    pub(crate) members: watch::Sender<Vec<Member>>,
    /// Number of nodes that answer requests; at least 1.
    pub(crate) ready_len: Arc<AtomicU32>,
    /// Set when this node was declared gone.
    pub(crate) ended: watch::Sender<Option<String>>,
}

impl Heartbeat {
    /// Starts the thread.
    pub(crate) fn start(me: NodeId, database: Database, channels: HeartbeatChannels) -> std::io::Result<Self> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        // It has just joined.
        let beaten_at = Arc::new(Mutex::new(Instant::now()));
        let beaten = beaten_at.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let beating = Beating::new(me, database, channels, beaten);
                tokio::select! {
                    () = beating.run() => {}
                    () = stopped.cancelled() => {}
                }
            });
        })?;
        Ok(Self { stop, beaten_at })
    }

    /// True if no heartbeat has reached the database for so long that another node may have taken over.
    pub(crate) fn is_silent(&self) -> bool {
        self.beaten_at.lock().elapsed() >= LEASE_TTL
    }
}

struct Beating {
    me: NodeId,
    database: Database,
    connection: Connection,
    channels: HeartbeatChannels,
    beaten_at: Arc<Mutex<Instant>>,
    watch: Watch,
    /// Measured with the last heartbeat.
    clock_offset_ms: i64,
}

/// Heartbeats that this node has seen, by its monotonic clock.
#[derive(Debug, Default)]
struct Watch {
    /// Heartbeat of each other node, and the time since when it is unchanged.
    seen: HashMap<NodeId, (i64, Instant)>,
    /// Last heartbeat of this node.
    beaten_at: Option<Instant>,
    /// Time since when its heartbeats are steady, if they are.
    steady_since: Option<Instant>,
}

impl Watch {
    /// Records a heartbeat of this node.
    fn beaten(&mut self, now: Instant) {
        let is_late = self.beaten_at.is_none_or(|beaten_at| now.duration_since(beaten_at) > STEADY_GAP);
        self.steady_since = self.steady_since.filter(|_| !is_late).or(Some(now));
        self.beaten_at = Some(now);
    }

    /// Records the heartbeats of the others; returns those that may be declared gone.
    fn overdue(&mut self, others: &[(NodeId, i64)], now: Instant) -> Vec<(NodeId, i64)> {
        self.seen.retain(|id, _| others.iter().any(|(other, _)| other == id));
        let is_steady = self.steady_since.is_some_and(|since| now.duration_since(since) >= LEASE_TTL);
        let mut overdue = Vec::new();
        for (id, seen_at) in others {
            let seen = self.seen.entry(*id).or_insert((*seen_at, now));
            if seen.0 != *seen_at {
                *seen = (*seen_at, now);
            }
            if is_steady && now.duration_since(seen.1) >= LEASE_TTL {
                overdue.push((*id, *seen_at));
            }
        }
        overdue
    }
}

impl Beating {
    fn new(me: NodeId, database: Database, channels: HeartbeatChannels, beaten_at: Arc<Mutex<Instant>>) -> Self {
        Self {
            me,
            connection: database.unreplicated(),
            database,
            channels,
            beaten_at,
            watch: Watch::default(),
            clock_offset_ms: 0,
        }
    }

    async fn run(mut self) {
        let mut state = self.channels.state.subscribe();
        loop {
            match tokio::time::timeout(BEAT_TIMEOUT, self.beat()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    let why = format!(
                        "this node was declared gone: it sent no heartbeat for {} s, or another node with its name has started",
                        LEASE_TTL.as_secs()
                    );
                    self.channels.ended.send_replace(Some(why));
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a heartbeat did not reach the database");
                    self.failed();
                }
                Err(_) => {
                    tracing::warn!("a heartbeat did not reach the database in time");
                    self.failed();
                }
            }
            let age = self.watch.beaten_at.map_or(Duration::ZERO, |beaten_at| beaten_at.elapsed());
            metrics::HEARTBEAT_AGE.set(&[], age.as_secs_f64());
            tokio::select! {
                () = tokio::time::sleep(BEAT_INTERVAL) => {}
                // Other nodes learn of a new state at once.
                Ok(()) = state.changed() => {}
            }
        }
    }

    /// Records that a heartbeat failed. The next one uses a new connection: another server may have become the primary.
    fn failed(&mut self) {
        self.watch.steady_since = None;
        self.connection = self.database.unreplicated();
    }

    /// Sends a heartbeat and looks at the other nodes; returns false if this node was declared gone.
    async fn beat(&mut self) -> Result<bool, DbErr> {
        let state: &str = (*self.channels.state.borrow()).into();
        let values = [self.me.to_string().into(), state.into(), self.clock_offset_ms.into()];
        let (begun, sent) = (Instant::now(), SystemTime::now());
        let rows = statements::run(&self.connection, &statements::beat(), values).await?;
        let mut members = Vec::with_capacity(rows.len());
        let mut beaten_ms = None;
        for row in &rows {
            let member = Member::of(row)?;
            beaten_ms = beaten_ms.or(row.try_get::<bool>("", "beaten")?.then_some(member.seen_at));
            members.push(member);
        }
        let Some(beaten_ms) = beaten_ms else { return Ok(false) };
        *self.beaten_at.lock() = begun;
        self.note_offset(sent, SystemTime::now(), beaten_ms);
        let now = Instant::now();
        self.watch.beaten(now);
        let others: Vec<_> =
            members.iter().filter(|member| member.id != self.me).map(|member| (member.id, member.seen_at)).collect();
        for (id, seen_at) in self.watch.overdue(&others, now) {
            let values = [id.to_string().into(), seen_at.into()];
            if !statements::run(&self.connection, statements::EXPIRE, values).await?.is_empty() {
                tracing::warn!(node.id = %id, "a node is gone: no heartbeat for {} s", LEASE_TTL.as_secs());
            }
        }
        metrics::NODES.set_count(&[], members.len() as u64);
        if members.iter().any(|member| member.id == self.me && member.drain_requested) {
            self.channels.state.send_if_modified(|state| {
                let is_new = *state == NodeState::Ready;
                *state = if is_new { NodeState::Draining } else { *state };
                is_new
            });
        }
        let ready = members.iter().filter(|member| member.state == NodeState::Ready).count();
        self.channels.ready_len.store(u32::try_from(ready).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
        // Heartbeats change with every read, and the offsets a little.
        self.channels.members.send_if_modified(|known| {
            let is_new = *known != members;
            *known = members;
            is_new
        });
        Ok(true)
    }

    /// Measures how far the clock of this machine is ahead of the clock of the database server.
    #[allow(clippy::cast_precision_loss, reason = "offsets are far below 2^52 ms")]
    fn note_offset(&mut self, sent: SystemTime, received: SystemTime, database_ms: i64) {
        let ms = |at: SystemTime| {
            at.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
        };
        let offset_ms = i64::midpoint(ms(sent), ms(received)) - database_ms;
        metrics::CLOCK_OFFSET.set(&[], offset_ms as f64 / 1_000.0);
        let was_off = self.clock_offset_ms.abs() > CLOCK_OFFSET_WARNED_MS;
        if offset_ms.abs() > CLOCK_OFFSET_WARNED_MS && !was_off {
            tracing::warn!(offset_ms, "the clock of this machine differs from the clock of the database server");
        }
        self.clock_offset_ms = offset_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_node_is_overdue_after_a_ttl_of_own_steady_heartbeats() {
        let (mut watch, start, other) = (Watch::default(), Instant::now(), NodeId::generate());
        for second in 0..6 {
            let now = start + SECOND * second;
            watch.beaten(now);
            assert_eq!(watch.overdue(&[(other, 1)], now), [], "after {second} s");
        }
        let now = start + LEASE_TTL;
        watch.beaten(now);
        assert_eq!(watch.overdue(&[(other, 1)], now), [(other, 1)]);
        assert_eq!(watch.overdue(&[(other, 2)], now), [], "it sent one");
    }

    #[test]
    fn no_node_is_overdue_after_an_outage_until_own_heartbeats_are_steady_again() {
        let (mut watch, start, other) = (Watch::default(), Instant::now(), NodeId::generate());
        watch.beaten(start);
        assert_eq!(watch.overdue(&[(other, 1)], start), []);
        let back = start + Duration::from_mins(1);
        for second in 0..6 {
            let now = back + SECOND * second;
            watch.beaten(now);
            assert_eq!(watch.overdue(&[(other, 1)], now), [], "{second} s after the outage");
        }
        watch.beaten(back + LEASE_TTL);
        assert_eq!(watch.overdue(&[(other, 1)], back + LEASE_TTL), [(other, 1)]);
    }
}
