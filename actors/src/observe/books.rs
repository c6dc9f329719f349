//! The books of a tree: one set of figures for each actor, and one for each kind.
//!
//! All of it is atomics that nobody waits for. A payment's books cost it less than a hundred bytes; what its kind
//! counts outlives it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_domain::{PaymentId, Timestamp};
use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::watch;

use super::ActorKind;
use super::kept::{Behaviour, Kept};
use super::log::{Cause, Failure, Incident, Quarantine, Record, SupervisionLog, cut};
use super::mailbox::Mailbox;
use super::metrics::{self, KindMetrics};
use super::tally::Tally;
use super::view::{Figures, NodeState};
use crate::clock::Clock;

/// The books of one tree. Clones are the same books.
#[derive(Clone)]
pub struct Books {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    kinds: Vec<Arc<KindBooks>>,
    /// Everything but payments.
    nodes: Mutex<BTreeMap<(ActorKind, String), Arc<Node>>>,
    log: SupervisionLog,
    tally: Tally,
}

impl Default for Books {
    fn default() -> Self {
        Self::new(Clock::default(), true)
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books").field("kinds", &self.inner.kinds).finish_non_exhaustive()
    }
}

impl Books {
    /// Empty books. Without `measuring` only the living and the failed are counted: what the rest costs can be seen so.
    pub fn new(clock: Clock, measuring: bool) -> Self {
        metrics::describe();
        let kinds = ActorKind::ALL.iter().map(|kind| Arc::new(KindBooks::new(*kind, measuring))).collect();
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

    fn now(&self) -> Timestamp {
        self.inner.clock.real_now()
    }

    /// Records a failure and that the actor is started again.
    pub(crate) fn restarted(&self, kind: ActorKind, name: &str, cause: Cause, reason: &str) {
        let failure = Failure { at: self.now(), cause, reason: cut(reason) };
        tracing::warn!(actor.kind = kind.as_str(), actor.name = %name, cause = cause.as_str(), reason = %failure.reason,
            "actor failed and is restarted");
        self.kind(kind).restarted(&failure);
        if kind != ActorKind::Payment {
            self.node(kind, name).standing.lock().state = NodeState::Restarting;
        }
        self.inner.log.restarted(kind, name, &failure);
    }

    /// Records a failure and that the payment is given up.
    pub(crate) fn quarantined(&self, payment: PaymentId, cause: Cause, reason: &str) {
        let failure = Failure { at: self.now(), cause, reason: cut(reason) };
        tracing::error!(payment.id = %payment, cause = cause.as_str(), reason = %failure.reason,
            "payment {payment} failed too often and is quarantined");
        self.kind(ActorKind::Payment).quarantined(&failure);
        self.inner.log.quarantined(payment, &failure);
    }

    /// Whether a payment is given up.
    pub fn is_quarantined(&self, payment: PaymentId) -> bool {
        self.inner.log.is_quarantined(payment)
    }

    /// Lets a payment run again. Answers whether it was quarantined.
    pub(crate) fn release(&self, payment: PaymentId) -> bool {
        self.inner.log.release(payment)
    }

    /// Payments given up.
    pub fn quarantine(&self) -> BTreeMap<PaymentId, Quarantine> {
        self.inner.log.quarantine()
    }

    pub(crate) fn quarantine_of(&self, payment: PaymentId) -> Option<Quarantine> {
        self.inner.log.quarantine_of(payment)
    }

    /// Incidents with a number above `after` that are still kept, oldest first.
    pub fn incidents(&self, after: u64) -> Vec<Incident> {
        self.inner.log.since(after)
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
        metrics::refresh_quarantined(self.inner.log.quarantined_len());
        if self.inner.tally.is_counted() {
            metrics::refresh_payments(&self.inner.tally.read());
        }
    }

    pub(super) fn record_of(&self, kind: ActorKind, name: &str) -> Record {
        self.inner.log.record_of(kind, name)
    }

    /// Restarts of a payment, and its last failure, as far as they are remembered.
    pub(crate) fn failures_of(&self, payment: PaymentId) -> (u64, Option<Failure>) {
        let Record { restarts, last } = self.record_of(ActorKind::Payment, &payment.to_string());
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
        books.since_ms.store(now.as_millis(), Ordering::Relaxed);
        books.kind.live.fetch_add(1, Ordering::Relaxed);
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
        self.books.kind.live.fetch_sub(1, Ordering::Relaxed);
        let Some((node, incarnation)) = self.node.as_deref() else { return };
        let mut standing = node.standing.lock();
        // Whoever is to be restarted says so by itself, before or after.
        if standing.incarnation == *incarnation && standing.state == NodeState::Running {
            standing.state = NodeState::Stopped;
        }
    }
}

/// One actor's figures.
pub(crate) struct ActorBooks {
    kind: Arc<KindBooks>,
    since_ms: AtomicI64,
    /// What the actor lets be seen at a glance; what it means is its kind's.
    note: AtomicU64,
    depth: AtomicU32,
    pub(super) totals: Totals,
}

impl ActorBooks {
    fn new(kind: Arc<KindBooks>) -> Self {
        let (since_ms, note, depth) = (AtomicI64::default(), AtomicU64::default(), AtomicU32::default());
        Self { kind, since_ms, note, depth, totals: Totals::default() }
    }

    /// Messages that wait in its mailbox.
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed) as usize
    }

    /// When it was last started.
    pub(crate) fn since(&self) -> Timestamp {
        Timestamp(self.since_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn note(&self) -> u64 {
        self.note.load(Ordering::Relaxed)
    }

    pub(crate) fn set_note(&self, note: u64) {
        self.note.store(note, Ordering::Relaxed);
    }

    /// What is taken out of a queue was waiting for so long.
    pub(crate) fn waited(&self, waited: Duration) {
        self.totals.waited(waited);
        self.kind.totals.waited(waited);
        self.kind.metrics.wait.record(waited.as_secs_f64());
    }

    /// One piece of work took so long.
    pub(crate) fn handled(&self, took: Duration) {
        self.totals.handled(took);
        self.kind.totals.handled(took);
        self.kind.metrics.handling.record(took.as_secs_f64());
    }

    /// What is measured of it.
    pub(crate) fn figures(&self) -> Figures {
        self.totals.figures(self.depth())
    }

    pub(crate) fn is_measuring(&self) -> bool {
        self.kind.measuring
    }
}

/// What is added up of one actor or of all of a kind.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) messages: AtomicU64,
    pub(super) handled: AtomicU64,
    pub(super) wait_us: AtomicU64,
    pub(super) handling_us: AtomicU64,
    pub(super) wait_us_max: AtomicU32,
    pub(super) handling_us_max: AtomicU32,
}

impl Totals {
    fn waited(&self, waited: Duration) {
        let us = micros(waited);
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.wait_us.fetch_add(us, Ordering::Relaxed);
        raise(&self.wait_us_max, us);
    }

    fn handled(&self, took: Duration) {
        let us = micros(took);
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.handling_us.fetch_add(us, Ordering::Relaxed);
        raise(&self.handling_us_max, us);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Mostly a read: a maximum is seldom raised.
fn raise(max: &AtomicU32, us: u64) {
    let us = u32::try_from(us).unwrap_or(u32::MAX);
    if us > max.load(Ordering::Relaxed) {
        max.fetch_max(us, Ordering::Relaxed);
    }
}

/// The figures of all actors of a kind, those that have ended included.
pub(crate) struct KindBooks {
    pub(super) kind: ActorKind,
    measuring: bool,
    live: AtomicI64,
    depth: AtomicI64,
    pub(super) totals: Totals,
    restarts: [AtomicU64; Cause::ALL.len()],
    quarantined: AtomicU64,
    last_failure: Mutex<Option<Failure>>,
    metrics: KindMetrics,
}

impl fmt::Debug for KindBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindBooks")
            .field("kind", &self.kind)
            .field("live", &self.live)
            .field("depth", &self.depth)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl KindBooks {
    fn new(kind: ActorKind, measuring: bool) -> Self {
        Self {
            kind,
            measuring,
            live: AtomicI64::default(),
            depth: AtomicI64::default(),
            totals: Totals::default(),
            restarts: Default::default(),
            quarantined: AtomicU64::default(),
            last_failure: Mutex::default(),
            metrics: KindMetrics::new(kind),
        }
    }

    /// Actors of the kind that are there.
    pub(crate) fn live(&self) -> usize {
        usize::try_from(self.live.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Messages that wait in all their mailboxes.
    pub(crate) fn depth(&self) -> usize {
        usize::try_from(self.depth.load(Ordering::Relaxed)).unwrap_or_default()
    }

    pub(super) fn restarts(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.restarts[cause as usize].load(Ordering::Relaxed)))
    }

    pub(super) fn quarantined_total(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().clone()
    }

    fn restarted(&self, failure: &Failure) {
        self.restarts[failure.cause as usize].fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
        metrics::restarted(self.kind, failure.cause);
    }

    fn quarantined(&self, failure: &Failure) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.clone());
        metrics::quarantined(failure.cause);
    }

    /// Shows what is not counted as it happens.
    fn refresh_metrics(&self) {
        self.metrics.refresh(self.live(), self.depth(), self.totals.messages.load(Ordering::Relaxed));
    }
}

/// What waits in a mailbox or queue: since when, and counted there until this is dropped.
pub(crate) struct Stamp(Option<Stamped>);

struct Stamped {
    books: Arc<ActorBooks>,
    sent: Instant,
}

impl Stamp {
    pub(crate) fn new(books: &Arc<ActorBooks>) -> Self {
        if !books.kind.measuring {
            return Self(None);
        }
        books.depth.fetch_add(1, Ordering::Relaxed);
        books.kind.depth.fetch_add(1, Ordering::Relaxed);
        Self(Some(Stamped { books: Arc::clone(books), sent: Instant::now() }))
    }

    /// It is taken out: its wait is over at `now`.
    pub(crate) fn taken(self, now: Instant) {
        if let Some(stamped) = &self.0 {
            stamped.books.waited(now.saturating_duration_since(stamped.sent));
        }
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        self.books.depth.fetch_sub(1, Ordering::Relaxed);
        self.books.kind.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A message is being handled for as long as this lives.
pub(super) struct Handling<'a>(Option<(&'a ActorBooks, Instant)>);

impl<'a> Handling<'a> {
    pub(super) fn begin(books: &'a ActorBooks, stamp: Stamp) -> Self {
        if !books.is_measuring() {
            return Self(None);
        }
        let now = Instant::now();
        stamp.taken(now);
        Self(Some((books, now)))
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        if let Some((books, begun)) = self.0 {
            books.handled(begun.elapsed());
        }
    }
}
