//! The books of a tree: who is there, the figures of each and of each kind, the log, and the tally of payments.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use payferry_domain::Timestamp;
use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::watch;

use super::figures::{ActorBooks, KindBooks};
use super::kept::{Behaviour, Kept};
use super::log::{Cause, Failure, Incident, Record, SupervisionLog, cut};
use super::mailbox::Mailbox;
use super::metrics;
use super::quarantine::{GivenUp, Quarantine};
use super::tally::Tally;
use super::view::NodeState;
use super::{ActorKind, Ferried};
use crate::clock::Clock;

/// The books of one tree. Clones are the same books.
#[derive(Clone)]
pub struct Books {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    kinds: Vec<Arc<KindBooks>>,
    /// Everything but payments, payouts and withdrawals.
    nodes: Mutex<BTreeMap<(ActorKind, String), Arc<Node>>>,
    log: SupervisionLog,
    tally: Tally,
}

impl Default for Books {
    fn default() -> Self {
        Self::new(Clock::default())
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books").field("kinds", &self.inner.kinds).finish_non_exhaustive()
    }
}

impl Books {
    /// Empty books.
    pub fn new(clock: Clock) -> Self {
        metrics::describe();
        let kinds = ActorKind::ALL.iter().map(|kind| Arc::new(KindBooks::new(*kind))).collect();
        let (nodes, log) = (Mutex::default(), SupervisionLog::default());
        Self { inner: Arc::new(Inner { clock, kinds, nodes, log, tally: Tally::default() }) }
    }

    /// Starts an actor that the tree's view lists by name.
    pub(crate) async fn spawn<B: Behaviour>(
        &self,
        name: &str,
        behaviour: B,
        args: B::Arguments,
        supervisor: Option<ActorCell>,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        self.start(behaviour, args, supervisor, self.present(B::KIND, name)).await
    }

    /// Starts one of very many, which are only counted.
    pub(crate) async fn spawn_unlisted<B: Behaviour>(
        &self,
        behaviour: B,
        args: B::Arguments,
        supervisor: ActorCell,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        let books = Arc::new(ActorBooks::new(Arc::clone(self.kind(B::KIND))));
        self.start(behaviour, args, Some(supervisor), Presence::new(books, None, self.now())).await
    }

    async fn start<B: Behaviour>(
        &self,
        behaviour: B,
        args: B::Arguments,
        supervisor: Option<ActorCell>,
        presence: Presence,
    ) -> Result<Mailbox<B::Msg>, SpawnErr> {
        let books = Arc::clone(presence.books());
        let kept = Kept::new(behaviour, presence);
        let (actor, _) = match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, kept, args, supervisor).await?,
            None => Actor::spawn(None, kept, args).await?,
        };
        Ok(Mailbox::new(actor, books))
    }

    /// Marks a listed actor, or what is kept like one, as running until the answer is dropped.
    pub(crate) fn present(&self, kind: ActorKind, name: &str) -> Presence {
        let node = self.node(kind, name);
        Presence::new(Arc::clone(&node.books), Some(node), self.now())
    }

    /// The books of a listed actor, which go on when it is restarted.
    pub(crate) fn of(&self, kind: ActorKind, name: &str) -> Arc<ActorBooks> {
        Arc::clone(&self.node(kind, name).books)
    }

    pub(super) fn node(&self, kind: ActorKind, name: &str) -> Arc<Node> {
        let mut nodes = self.inner.nodes.lock();
        let fresh = || {
            let books = Arc::new(ActorBooks::new(Arc::clone(self.kind(kind))));
            Arc::new(Node { kind, name: name.to_owned(), books, standing: Mutex::default() })
        };
        Arc::clone(nodes.entry((kind, name.to_owned())).or_insert_with(fresh))
    }

    /// All listed actors of a kind, by name.
    pub(super) fn nodes(&self, kind: ActorKind) -> Vec<Arc<Node>> {
        let nodes = self.inner.nodes.lock();
        let of_kind = nodes.range((kind, String::new())..).take_while(|((of, _), _)| *of == kind);
        of_kind.map(|(_, node)| Arc::clone(node)).collect()
    }

    pub(crate) fn kind(&self, kind: ActorKind) -> &Arc<KindBooks> {
        &self.inner.kinds[kind as usize]
    }

    /// Payments by status.
    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    /// By the wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.real_now()
    }

    /// Records a failure and that the actor is started again.
    pub(crate) fn restarted(&self, kind: ActorKind, name: &str, cause: Cause, reason: &str) {
        let failure = Failure { at: self.now(), cause, reason: cut(reason) };
        tracing::warn!(actor.kind = kind.as_str(), actor.name = %name, cause = cause.as_str(), reason = %failure.reason,
            "actor failed and is restarted");
        self.kind(kind).restarted(&failure);
        if !kind.is_one_of_many() {
            self.node(kind, name).standing.lock().state = NodeState::Restarting;
        }
        self.inner.log.restarted(kind, name, &failure);
    }

    /// Records a failure and that the payment, payout or withdrawal is given up.
    pub(crate) fn quarantined(&self, of: impl Into<Ferried>, cause: Cause, reason: &str) {
        let of = of.into();
        let failure = Failure { at: self.now(), cause, reason: cut(reason) };
        let (kind, cause) = (of.kind().as_str(), cause.as_str());
        tracing::error!(actor.kind = kind, actor.name = %of, cause, reason = %failure.reason,
            "{kind} {of} failed too often and is quarantined");
        self.kind(of.kind()).quarantined(&failure);
        self.inner.log.quarantined(of, &failure);
    }

    /// Whether it is given up.
    pub fn is_quarantined(&self, of: impl Into<Ferried>) -> bool {
        self.inner.log.is_quarantined(of.into())
    }

    /// Lets it run again. Answers whether it was quarantined.
    pub(crate) fn release(&self, of: Ferried) -> bool {
        self.inner.log.release(of)
    }

    /// Those that are given up, the longest first: at most so many, behind `after` if that is given.
    pub fn given_up(&self, after: Option<(Timestamp, Ferried)>, limit: usize) -> Vec<GivenUp> {
        self.inner.log.given_up(after, limit)
    }

    /// How many are given up: payments, and payouts and withdrawals.
    pub fn quarantined_lens(&self) -> (usize, usize) {
        self.inner.log.quarantined_lens()
    }

    pub(crate) fn quarantine_of(&self, of: impl Into<Ferried>) -> Option<Quarantine> {
        self.inner.log.quarantine_of(of.into())
    }

    /// Incidents with a number above `after` that are still kept, oldest first.
    pub fn incidents(&self, after: u64) -> Vec<Incident> {
        self.inner.log.since(after)
    }

    /// The newest incidents that are kept, at most so many, the newest first.
    pub fn latest_incidents(&self, limit: usize) -> Vec<Incident> {
        self.inner.log.latest(limit)
    }

    /// The same of one actor.
    pub fn latest_incidents_of(&self, kind: ActorKind, name: &str, limit: usize) -> Vec<Incident> {
        self.inner.log.latest_of(kind, name, limit)
    }

    /// Incidents that are kept.
    pub fn incidents_len(&self) -> usize {
        self.inner.log.len()
    }

    /// Yields the number of the newest incident whenever there is one.
    pub fn watch_incidents(&self) -> watch::Receiver<u64> {
        self.inner.log.watch()
    }

    /// Restarts so far by kind of actor.
    pub fn restarts(&self) -> BTreeMap<ActorKind, u64> {
        self.inner.log.restarts()
    }

    /// Shows what is not counted as it happens.
    pub(crate) fn refresh_metrics(&self) {
        self.inner.kinds.iter().for_each(|kind| kind.refresh_metrics());
        let (payments, sendings) = self.quarantined_lens();
        metrics::refresh_quarantined(payments, sendings);
        if self.inner.tally.is_counted() {
            metrics::refresh_payments(&self.inner.tally.read());
        }
    }

    pub(super) fn record_of(&self, kind: ActorKind, name: &str) -> Record {
        self.inner.log.record_of(kind, name)
    }

    /// Its restarts and its last failure, as far as they are remembered.
    pub(crate) fn failures_of(&self, of: impl Into<Ferried>) -> (u64, Option<Failure>) {
        let of = of.into();
        let Record { restarts, last } = self.record_of(of.kind(), &of.to_string());
        (restarts, last)
    }
}

/// An actor that is listed by name. It stays when it is restarted.
pub(super) struct Node {
    pub(super) kind: ActorKind,
    pub(super) name: String,
    pub(super) books: Arc<ActorBooks>,
    standing: Mutex<Standing>,
}

#[derive(Clone, Copy)]
struct Standing {
    state: NodeState,
    /// Counts starts: the end of one before says nothing about the one that runs.
    incarnation: u64,
}

impl Default for Standing {
    fn default() -> Self {
        Self { state: NodeState::Stopped, incarnation: 0 }
    }
}

impl Node {
    pub(super) fn state(&self) -> NodeState {
        self.standing.lock().state
    }
}

/// An actor is there for as long as this lives.
pub(crate) struct Presence {
    books: Arc<ActorBooks>,
    node: Option<Box<(Arc<Node>, u64)>>,
}

impl Presence {
    fn new(books: Arc<ActorBooks>, node: Option<Arc<Node>>, now: Timestamp) -> Self {
        books.began(now);
        let node = node.map(|node| {
            let incarnation = {
                let mut standing = node.standing.lock();
                *standing = Standing { state: NodeState::Running, incarnation: standing.incarnation + 1 };
                standing.incarnation
            };
            Box::new((node, incarnation))
        });
        Self { books, node }
    }

    pub(crate) fn books(&self) -> &Arc<ActorBooks> {
        &self.books
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.books.ended();
        let Some((node, incarnation)) = self.node.as_deref() else { return };
        let mut standing = node.standing.lock();
        // Whoever is to be restarted says so by itself, before or after.
        if standing.incarnation == *incarnation && standing.state == NodeState::Running {
            standing.state = NodeState::Stopped;
        }
    }
}
