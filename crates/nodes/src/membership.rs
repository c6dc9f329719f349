//! One node: how it joins the others, and how it leaves.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use parking_lot::Mutex;
use payferry_domain::{Chain, NodeId};
use payferry_entities::{Database, leases, nodes};
use sea_orm::sea_query::OnConflict;
use sea_orm::{DbBackend, DbErr, EntityTrait, IntoActiveModel, QueryResult};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::courier::Courier;
use crate::follow::{Follow, LeaseHolder};
use crate::heartbeat::{Heartbeat, HeartbeatChannels, Member, NodeState, members};
use crate::lease::{Lease, LeaseName, Leases};
use crate::{metrics, statements};

/// Milliseconds for which the row of a node that is gone is kept, and for which a lost node is listed.
const GONE_KEPT_MS: i64 = 86_400_000;
/// Largest offset of a clock with which a node takes requests.
const CLOCK_OFFSET_MAX_MS: i64 = 5_000;
/// Lease rows per statement.
const ROWS_MAX: usize = 200;

/// Configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Name, different on each node.
    pub name: String,
    /// Version of Payferry.
    pub version: String,
    /// Digest of the settings that must be the same on all nodes: contracts, signers, chains and keys.
    pub config_digest: String,
    /// URL of the public listener.
    pub api_url: String,
    /// URL of the operator's listener.
    pub operator_url: String,
    /// The configured chains.
    pub chains: Vec<Chain>,
    /// True if other nodes may share the database; needs [`Database::open_shared`].
    pub is_shared: bool,
}

impl NodeConfig {
    /// A node that runs alone with these chains.
    pub fn alone(chains: impl IntoIterator<Item = Chain>) -> Self {
        Self {
            name: "node".to_owned(),
            version: String::new(),
            config_digest: String::new(),
            api_url: String::new(),
            operator_url: String::new(),
            chains: chains.into_iter().collect(),
            is_shared: false,
        }
    }
}

/// A node that was declared gone.
#[derive(Debug, Clone)]
pub struct LostNode {
    /// Name from its configuration.
    pub name: String,
    /// Time of its last heartbeat, in milliseconds by the clock of the database server.
    pub seen_at: i64,
}

/// Reason why a node cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another node has other settings.
    #[error(
        "node {0} shares the database and has another configuration: contracts, signers, chains and keys must be the same on \
         all nodes"
    )]
    Differs(String),
    /// The database is not available.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
    /// The heartbeats could not start.
    #[error("the heartbeats could not start: {0}")]
    Heartbeat(#[from] std::io::Error),
}

/// Handle to this node. Clones share it.
#[derive(Clone, derive_more::Debug)]
#[debug("Node {{ id: {}, name: {:?}, .. }}", inner.id, inner.name)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    pub(crate) database: Database,
    pub(crate) leases: Leases,
    pub(crate) courier: Courier,
    pub(crate) state: watch::Sender<NodeState>,
    pub(crate) members: watch::Receiver<Vec<Member>>,
    ready_len: Arc<AtomicU32>,
    ended: watch::Receiver<Option<String>>,
    heartbeat: Option<Heartbeat>,
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Node {
    /// Joins the nodes of a migrated database. A node that runs alone gets all leases at once; the others claim theirs in
    /// [`Self::follow`]. An older node with the same name is declared gone, so that a restart need not wait for its leases.
    pub async fn join(database: Database, config: NodeConfig) -> Result<Self, JoinError> {
        metrics::describe();
        let id = NodeId::generate();
        let transaction = database.begin().await?;
        statements::lock_joining(&transaction).await?;
        let live = members(&transaction).await?;
        let is_other = |member: &&Member| config.is_shared && member.name != config.name;
        if let Some(other) = live.iter().filter(is_other).find(|other| other.config_digest != config.config_digest) {
            return Err(JoinError::Differs(other.name.clone()));
        }
        for earlier in live.iter().filter(|member| !is_other(member)) {
            statements::run(&transaction, statements::LEAVE, [earlier.id.to_string().into()]).await?;
        }
        let NodeConfig { name, version, config_digest, api_url, operator_url, chains, is_shared } = config;
        let state = NodeState::Joining.to_string();
        let row = nodes::Model {
            id: id.to_string(),
            name: name.clone(),
            version,
            config_digest,
            api_url,
            operator_url,
            state,
            joined_at: 0,
            seen_at: 0,
            clock_offset_ms: 0,
            drain_requested: false,
            left_at: None,
        };
        nodes::Entity::insert(row.into_active_model()).exec_without_returning(&transaction).await?;
        let now = "UPDATE nodes SET joined_at = {now}, seen_at = {now} WHERE id = $1 RETURNING id";
        statements::run(&transaction, now, [id.to_string().into()]).await?;
        add_leases(&transaction, &chains).await?;
        let old = "DELETE FROM nodes WHERE state = 'gone' AND seen_at < {now} - $1 \
             AND NOT EXISTS (SELECT 1 FROM leases WHERE owner = nodes.id) RETURNING id";
        statements::run(&transaction, old, [GONE_KEPT_MS.into()]).await?;
        let leases = Leases::default();
        if !is_shared {
            let all = LeaseName::all(&chains);
            for lease in claim(&transaction, id, &all, all.len()).await? {
                leases.insert(lease);
            }
        }
        let joined = members(&transaction).await?;
        transaction.commit().await?;
        let state = watch::Sender::new(NodeState::Joining);
        let (known, members) = watch::channel(joined);
        let (end, ended) = watch::channel(None);
        let ready_len = Arc::new(AtomicU32::new(1));
        let (heartbeat, courier) = if is_shared {
            let channels =
                HeartbeatChannels { state: state.clone(), members: known, ready_len: ready_len.clone(), ended: end };
            let courier = Courier::start(id, database.clone(), members.clone());
            (Some(Heartbeat::start(id, database.clone(), channels)?), courier)
        } else {
            (None, Courier::default())
        };
        metrics::show_leases(&leases);
        let following = Mutex::default();
        let inner =
            Inner { id, name, database, leases, courier, state, members, ready_len, ended, heartbeat, following };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Id, new at every start.
    pub fn id(&self) -> NodeId {
        self.inner.id
    }

    /// Name from the configuration.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// True if other nodes may share the database.
    pub fn is_shared(&self) -> bool {
        self.inner.heartbeat.is_some()
    }

    /// Leases that this node holds.
    pub fn leases(&self) -> &Leases {
        &self.inner.leases
    }

    /// Sends nudges to the other nodes.
    pub fn courier(&self) -> &Courier {
        &self.inner.courier
    }

    /// Waits until this node drains, because its process stops, or because an operator asked for it.
    pub async fn draining(&self) {
        let _ = self.inner.state.subscribe().wait_for(|state| *state == NodeState::Draining).await;
    }

    /// State of this node.
    pub fn state(&self) -> NodeState {
        *self.inner.state.borrow()
    }

    /// Nodes that are not gone, this one included, as of the last heartbeat.
    pub fn members(&self) -> Vec<Member> {
        self.inner.members.borrow().clone()
    }

    /// URLs of the public listeners of all nodes that are ready.
    pub fn ready_urls(&self) -> Vec<String> {
        let members = self.inner.members.borrow();
        let ready = members.iter().filter(|member| member.state == NodeState::Ready);
        ready.map(|member| member.api_url.clone()).collect()
    }

    /// True if no heartbeat has reached the database for the TTL: another node may do the work of this one's leases, of which
    /// this one learns only with its next heartbeat.
    pub fn is_silent(&self) -> bool {
        self.inner.heartbeat.as_ref().is_some_and(Heartbeat::is_silent)
    }

    /// Number of nodes that answer requests; at least 1. It changes with them.
    pub fn ready_len(&self) -> Arc<AtomicU32> {
        self.inner.ready_len.clone()
    }

    /// Offset of this machine's clock, if it is too far off to take requests: more than 5 s from the clock
    /// of the database server, while the clock of another node is not. A step of the server's clock concerns all nodes, and
    /// must not stop them.
    pub fn clock_fault_ms(&self) -> Option<i64> {
        let members = self.inner.members.borrow();
        let is_off = |member: &&Member| member.clock_offset_ms.abs() > CLOCK_OFFSET_MAX_MS;
        let (own, others): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|member| member.id == self.inner.id);
        let own = own.into_iter().find(is_off)?;
        others.iter().any(|other| !is_off(other)).then_some(own.clock_offset_ms)
    }

    /// Reports that this node answers requests.
    pub fn ready(&self) {
        self.inner.state.send_if_modified(|state| {
            let is_new = *state == NodeState::Joining;
            *state = if is_new { NodeState::Ready } else { *state };
            is_new
        });
    }

    /// Claims leases for `holder` and hands them over, until this node leaves. Returns after the first claim, whose leases
    /// `holder` has then got. A node that runs alone holds all of them already, so it follows nothing.
    pub async fn follow(&self, holder: Arc<dyn LeaseHolder>) {
        if !self.is_shared() {
            holder.gain(self.inner.leases.all()).await;
            return;
        }
        let mut follow = Follow::new(holder);
        follow.turn(self).await;
        let run = follow.run(Arc::downgrade(&self.inner), self.courier().leases_moved());
        let following = AbortOnDropHandle::new(tokio::spawn(run));
        *self.inner.following.lock() = Some(following);
    }

    /// Hands all leases over to other nodes, as far as there are any that are ready; returns when that is done, at the
    /// latest after `limit`.
    pub async fn drain(&self, limit: Duration) {
        self.inner.state.send_replace(NodeState::Draining);
        let drained = async {
            while self.is_shared() && !self.inner.leases.all().is_empty() && self.has_successor() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = tokio::time::timeout(limit, drained).await;
    }

    pub(crate) fn has_successor(&self) -> bool {
        let is_successor = |member: &Member| member.id != self.inner.id && member.state == NodeState::Ready;
        self.inner.members.borrow().iter().any(is_successor)
    }

    /// Ends this node: others may claim its leases at once. Call it after the work has stopped.
    pub async fn leave(&self) -> Result<(), DbErr> {
        self.inner.following.lock().take();
        let values = [self.inner.id.to_string().into()];
        statements::run(self.inner.database.writer(), statements::LEAVE, values).await.map(drop)
    }

    /// Nodes that the others declared gone within a day and that have not started again, the longest gone first.
    pub async fn lost(&self) -> Result<Vec<LostNode>, DbErr> {
        let rows = statements::run(self.inner.database.reader(), statements::LOST, [GONE_KEPT_MS.into()]).await?;
        let node =
            |row: &QueryResult| Ok(LostNode { name: row.try_get("", "name")?, seen_at: row.try_get("", "seen_at")? });
        rows.iter().map(node).collect()
    }

    /// Waits until this node must end at once, because another node has declared it gone; returns why.
    pub async fn ended(&self) -> String {
        let mut ended = self.inner.ended.clone();
        match ended.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(why)) => why,
            // A service that runs alone has no heartbeats.
            _ => std::future::pending().await,
        }
    }
}

/// Adds the rows of leases that do not exist yet.
async fn add_leases(transaction: &payferry_entities::Transaction, chains: &[Chain]) -> Result<(), DbErr> {
    let backend = sea_orm::ConnectionTrait::get_database_backend(transaction);
    let row = |name: &LeaseName| {
        let (name, kind) = (name.to_string(), name.kind().to_string());
        leases::Model { name, kind, owner: None, requested_by: None, epoch: 0, changed_at: 0 }.into_active_model()
    };
    let known = leases::Entity::find().all(transaction).await?;
    let is_new = |name: &LeaseName| known.iter().all(|row| row.name != name.to_string());
    let new: Vec<LeaseName> = LeaseName::all(chains).into_iter().filter(is_new).collect();
    debug_assert!(matches!(backend, DbBackend::Postgres | DbBackend::Sqlite));
    for names in new.chunks(ROWS_MAX) {
        let there = OnConflict::column(leases::Column::Name).do_nothing().to_owned();
        let insert = leases::Entity::insert_many(names.iter().map(row)).on_conflict(there);
        insert.exec_without_returning(transaction).await?;
    }
    Ok(())
}

/// Claims up to `limit` of these leases that are free. A lease of another version is left to a node of that version.
pub(crate) async fn claim(
    connection: &impl sea_orm::ConnectionTrait,
    me: NodeId,
    names: &[LeaseName],
    limit: usize,
) -> Result<Vec<Lease>, DbErr> {
    if names.is_empty() || limit == 0 {
        return Ok(Vec::new());
    }
    let sql = statements::claim(connection.get_database_backend(), names.len());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values =
        [me.to_string().into(), limit.into()].into_iter().chain(names.iter().map(|name| name.to_string().into()));
    let rows = statements::run(connection, &sql, values).await?;
    let lease = |row: &QueryResult| {
        let name: LeaseName = row.try_get_by_index::<String>(0).ok()?.parse().ok()?;
        Some(Lease::claimed(name, me, row.try_get_by_index(1).ok()?, row.try_get_by_index(2).ok()?))
    };
    Ok(rows.iter().filter_map(lease).collect())
}
