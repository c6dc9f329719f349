//! Registry of a tree: its actors, the metrics of each actor and of each kind, and the supervision log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use ractor::{Actor, ActorCell, SpawnErr};

use super::ActorKind;
use super::actor::{Behaviour, Mailbox, MeasuredActor};
use super::figures::{ActorKindMetrics, ActorMetrics, NodeState};
use super::log::{Action, ActorFailure, Cause, SupervisionLog, cut};
use super::metrics;
use super::panics::{self, PanicSource};
use crate::clock::Clock;

/// Registry of one tree. Clones share it.
#[derive(Clone, derive_more::Debug)]
#[debug("ActorRegistry {{ kinds: {:?}, .. }}", inner.kinds)]
pub struct ActorRegistry {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    kinds: Vec<Arc<ActorKindMetrics>>,
    /// All actors except payments, payouts and withdrawals.
    nodes: Mutex<BTreeMap<(ActorKind, String), Arc<Node>>>,
    log: SupervisionLog,
}

impl Default for ActorRegistry {
    fn default() -> Self {
        Self::new(Clock::default())
    }
}

impl ActorRegistry {
    /// Empty registry.
    pub fn new(clock: Clock) -> Self {
        metrics::describe();
        panics::install();
        let kinds = ActorKind::ALL.iter().map(|kind| Arc::new(ActorKindMetrics::new(*kind))).collect();
        let (nodes, log) = (Mutex::default(), SupervisionLog::default());
        Self { inner: Arc::new(Inner { clock, kinds, nodes, log }) }
    }

    /// Starts an actor that the tree view lists by name.
    pub async fn spawn<B: Behaviour>(
        &self,
        name: &str,
        behaviour: B,
        args: B::Arguments,
        supervisor: Option<ActorCell>,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        self.start(behaviour, args, supervisor, self.present(B::KIND, name)).await
    }

    /// Starts an actor that is only counted.
    pub async fn spawn_unlisted<B: Behaviour>(
        &self,
        behaviour: B,
        args: B::Arguments,
        supervisor: ActorCell,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        let registry = Arc::new(ActorMetrics::new(Arc::clone(self.kind(B::KIND))));
        self.start(behaviour, args, Some(supervisor), RunningGuard::new(registry, None, self.now())).await
    }

    async fn start<B: Behaviour>(
        &self,
        behaviour: B,
        args: B::Arguments,
        supervisor: Option<ActorCell>,
        running_guard: RunningGuard,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        let registry = Arc::clone(running_guard.actor_metrics());
        let kept = MeasuredActor::new(behaviour, running_guard);
        let (actor, _) = match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, kept, args, supervisor).await?,
            None => Actor::spawn(None, kept, args).await?,
        };
        Ok(Mailbox::new(actor, registry))
    }

    /// Marks a listed actor, or a task registered like one, as running until the result is dropped.
    pub fn present(&self, kind: ActorKind, name: &str) -> RunningGuard {
        let node = self.node(kind, name);
        RunningGuard::new(Arc::clone(&node.registry), Some(node), self.now())
    }

    /// Measurements of a listed actor, which continue over restarts.
    pub fn of(&self, kind: ActorKind, name: &str) -> Arc<ActorMetrics> {
        Arc::clone(&self.node(kind, name).registry)
    }

    pub(super) fn node(&self, kind: ActorKind, name: &str) -> Arc<Node> {
        let mut nodes = self.inner.nodes.lock();
        let fresh = || {
            let registry = Arc::new(ActorMetrics::listed(Arc::clone(self.kind(kind))));
            Arc::new(Node { kind, name: name.to_owned(), registry, state: Mutex::default() })
        };
        Arc::clone(nodes.entry((kind, name.to_owned())).or_insert_with(fresh))
    }

    /// Views of the listed actors of a kind, by name.
    pub(super) fn nodes(&self, kind: ActorKind) -> Vec<Arc<Node>> {
        let nodes = self.inner.nodes.lock();
        let of_kind = nodes.range((kind, String::new())..).take_while(|((of, _), _)| *of == kind);
        of_kind.map(|(_, node)| Arc::clone(node)).collect()
    }

    /// Measurements of a kind.
    pub fn kind(&self, kind: ActorKind) -> &Arc<ActorKindMetrics> {
        &self.inner.kinds[kind as usize]
    }

    /// Wall-clock time.
    pub fn now(&self) -> SystemTime {
        self.inner.clock.real_now()
    }

    /// A failure that happens now, with the source of its panic.
    fn failure(&self, kind: ActorKind, cause: Cause, reason: &str) -> ActorFailure {
        let source = (cause == Cause::Panic).then(|| self.kind(kind).source_of(reason)).flatten();
        let (location, backtrace) = source.map(|PanicSource { location, backtrace }| (location, backtrace)).unzip();
        ActorFailure { at: self.now(), cause, reason: cut(reason), location, backtrace }
    }

    /// Records a failure and the restart of the actor.
    pub fn restarted(&self, kind: ActorKind, name: &str, cause: Cause, reason: &str) {
        let failure = self.failure(kind, cause, reason);
        tracing::warn!(actor.kind = kind.as_str(), actor.name = %name, cause = cause.as_str(), reason = %failure.reason,
            "actor failed and is restarted");
        self.kind(kind).restarted(&failure);
        if !kind.is_one_of_many() {
            self.node(kind, name).state.lock().state = NodeState::Restarting;
        }
        self.inner.log.add(kind, name, &failure, Action::Restarted);
    }

    /// Records a failure and the quarantine of the actor. Returns the recorded failure.
    pub fn quarantined(&self, kind: ActorKind, name: &str, cause: Cause, reason: &str) -> ActorFailure {
        let failure = self.failure(kind, cause, reason);
        let (shown, cause) = (kind.as_str(), cause.as_str());
        tracing::error!(actor.kind = shown, actor.name = %name, cause, reason = %failure.reason,
            "{shown} {name} failed and is quarantined");
        self.kind(kind).quarantined(&failure);
        self.inner.log.add(kind, name, &failure, Action::Quarantined);
        failure
    }

    /// Supervision log.
    pub fn log(&self) -> &SupervisionLog {
        &self.inner.log
    }

    /// Restarts by kind of actor.
    pub fn restarts(&self) -> BTreeMap<ActorKind, u64> {
        let of = |kind: &Arc<ActorKindMetrics>| (kind.kind, kind.restarts_total());
        self.inner.kinds.iter().map(of).filter(|(_, restarts)| *restarts > 0).collect()
    }

    /// Updates the metrics that are not counted on the event itself.
    pub fn refresh_metrics(&self) {
        self.inner.kinds.iter().for_each(|kind| kind.refresh_metrics());
    }

    /// Restarts and last failure of an actor, as far as they are still recorded.
    pub fn failures_of(&self, kind: ActorKind, name: &str) -> (u64, Option<ActorFailure>) {
        self.inner.log.failures_of(kind, name)
    }
}

/// Actor that is listed by name. The node survives restarts.
pub(super) struct Node {
    pub(super) kind: ActorKind,
    pub(super) name: String,
    pub(super) registry: Arc<ActorMetrics>,
    pub(super) state: Mutex<ActorState>,
}

#[derive(Clone, Copy)]
pub(super) struct ActorState {
    pub(super) state: NodeState,
    /// Number of starts: the end of an earlier incarnation does not affect the running one.
    incarnation: u64,
}

impl Default for ActorState {
    fn default() -> Self {
        Self { state: NodeState::Stopped, incarnation: 0 }
    }
}

/// Guard that marks an actor as running.
pub struct RunningGuard {
    registry: Arc<ActorMetrics>,
    node: Option<Box<(Arc<Node>, u64)>>,
}

impl RunningGuard {
    fn new(registry: Arc<ActorMetrics>, node: Option<Arc<Node>>, now: SystemTime) -> Self {
        registry.began(now);
        let node = node.map(|node| {
            let incarnation = {
                let mut current = node.state.lock();
                *current = ActorState { state: NodeState::Running, incarnation: current.incarnation + 1 };
                current.incarnation
            };
            Box::new((node, incarnation))
        });
        Self { registry, node }
    }

    /// Metrics of the actor.
    pub fn actor_metrics(&self) -> &Arc<ActorMetrics> {
        &self.registry
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.registry.ended();
        let Some((node, incarnation)) = self.node.as_deref() else { return };
        let mut current = node.state.lock();
        // The supervisor marks a restart itself, before or after this.
        if current.incarnation == *incarnation && current.state == NodeState::Running {
            current.state = NodeState::Stopped;
        }
    }
}
