//! The group-commit writer. Every write of the payment side, and every new customer, goes through it as a typed write
//! (`JournalWrite`).
//!
//! Owned here: the queues and their limits, the grouping of writes into commits, the order of statements in a commit,
//! and the outcome of a write that fails a precondition or that the database rejects. Deliberately absent: the contents
//! of writes (`payments` builds those of payments), and every read.
//!
//! Commits wake open pages and long polls, so that they need not poll the database. A subject is the id of a payment, or
//! of a PSP whose feed grows. The webhook sender is notified before the results of the writes are returned, so that
//! webhooks are not delayed by other actors. A subscriber reads the committed data after the wake-up.

mod bind;
mod blocks;
mod journal_write;
mod observer;
mod preconditions;
mod psp_line;
mod queue;
mod rows;
mod statements;
mod stats;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::RwLock;
use payferry_entities::Database;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub use journal_write::{
    AppliedTransfer, ChainBatch, ChainTxOutcome, ChainTxSubmission, Consequences, CustomerCreation,
    DELIVERY_RETRIES_MAX, DeliveryOutcome, Initiation, JournalTransition, JournalWrite, MovedAmounts, NewEvent,
    OperationChange, OperationOutcome, OperationRefusal, OutboundChange, Receipt, RefusedOperation, Reserve,
    SignedOperation, TransfersApplied,
};
pub use observer::{CommitObserver, PaymentMove, PaymentState, Quiet};
pub use queue::{GROUP_INITIATIONS_MIN, GROUP_UNITS_MAX, GROUP_WAIT, INITIATIONS_QUEUED_MAX, TRANSITIONS_QUEUED_MAX};
pub use stats::{COMMIT_SECONDS, CommitBlocker, GROUP_UNITS, JournalStats};
pub use task::JournalTask;

use observer::NoObserver;
use payferry_runtime::observe::{ActorKind, ActorMetrics, ActorRegistry, Stamp};
pub(crate) use psp_line::take_lines;
use queue::Queues;
use statements::Statements;
use stats::Counters;
use task::Shared;

/// Reason why a write was not committed, or may not have been committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// A precondition failed: another writer changed the row (version, cursor, nonce, operation). Reload and decide
    /// again.
    #[error("the row was changed by another write; reload and try again")]
    Conflict,
    /// Another node holds the lease; nothing was written. The caller must stop.
    #[error("another node holds the lease")]
    LeaseLost,
    /// The idempotency key was already used: read the response stored with it.
    #[error("the idempotency key was already used")]
    IdempotencyKeyTaken,
    /// The balance of the PSP does not cover the amount to send; nothing was written.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// The amount would exceed the daily limit; nothing was written.
    #[error("the daily limit for outbound transfers is reached")]
    AboveDailyLimit,
    /// The queue is full; nothing was written.
    #[error("the journal queue is full; try again later")]
    Busy,
    /// The database is unavailable; nothing was written.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The commit was sent and there was no response: it may or may not have happened. Reload.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
    /// Only this write is invalid (a constraint, a value that the database rejects); nothing of it was written.
    #[error("the database rejected the write: {0}")]
    Refused(String),
}

/// Actor name of the journal.
pub const NAME: &str = "journal";

/// A submitted write, with the channel for its result.
pub(crate) struct Submitted {
    write: JournalWrite,
    answer: oneshot::Sender<Result<Receipt, JournalError>>,
    /// Set until the write is taken into a group.
    waits: Option<Stamp>,
}

/// Handle to the journal. Clones share the queues.
#[derive(Clone, derive_more::Debug)]
#[debug("Journal {{ stats: {:?}, .. }}", self.stats())]
pub struct Journal {
    transitions: mpsc::Sender<Submitted>,
    initiations: mpsc::Sender<Submitted>,
    shared: Arc<Shared>,
}

impl Journal {
    /// Creates the queues. Nothing is written before the task runs; see [`JournalTask::supervise`].
    pub fn start(database: Database) -> (Self, JournalTask) {
        Self::start_with(database, ActorRegistry::default(), Arc::new(NoObserver))
    }

    /// As [`Journal::start`], with a registry for metrics and an observer of commits.
    pub fn start_with(
        database: Database,
        registry: ActorRegistry,
        observer: Arc<dyn CommitObserver>,
    ) -> (Self, JournalTask) {
        let (transitions, transitions_queue) = mpsc::channel(TRANSITIONS_QUEUED_MAX);
        let (initiations, initiations_queue) = mpsc::channel(INITIATIONS_QUEUED_MAX);
        let announced = Arc::new(AtomicUsize::new(0));
        let queues = Queues::new(transitions_queue, initiations_queue, Arc::clone(&announced));
        let shared = Arc::new(Shared {
            statements: Statements::new(database.backend()),
            database,
            queues: Mutex::new(queues),
            announced,
            counters: Counters::new(),
            own: registry.of(ActorKind::Journal, NAME),
            registry,
            observer,
            wakes: Arc::default(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            #[cfg(test)]
            faults: tests::Faults::default(),
        });
        let task = JournalTask { shared: Arc::clone(&shared) };
        (Self { transitions, initiations, shared }, task)
    }

    /// Commits `write` and returns its receipt. A new payment, a new customer or an audited read is rejected
    /// ([`JournalError::Busy`]) while
    /// the queue of initiations is full; all other writes wait for room. A queued write is executed even if the caller
    /// stops waiting.
    pub async fn submit(&self, write: JournalWrite) -> Result<Receipt, JournalError> {
        let (answer, answered) = oneshot::channel();
        let is_new = write.is_new();
        let submitted = Submitted { write, answer, waits: Some(Stamp::new(self.actor_metrics())) };
        if is_new {
            self.initiations.try_send(submitted).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => JournalError::Busy,
                mpsc::error::TrySendError::Closed(_) => stopped(),
            })?;
        } else {
            self.transitions.send(submitted).await.map_err(|_| stopped())?;
        }
        answered
            .await
            .unwrap_or_else(|_| Err(JournalError::Unknown("the journal stopped before it answered".to_owned())))
    }

    /// Announces that `count` transitions with announcements will be submitted soon. They are written together, before
    /// writes without waiting callers. If fewer arrive, the others are written a moment later.
    pub fn expect_announcements(&self, count: usize) {
        self.shared.announced.fetch_add(count, Ordering::Relaxed);
    }

    fn actor_metrics(&self) -> &Arc<ActorMetrics> {
        &self.shared.own
    }

    /// Returns a [`Wake`] that fires after each commit about this payment id, or with announcements to this PSP id.
    pub fn wake_on(&self, subject: impl fmt::Display) -> Wake {
        self.shared.wakes.subscribe(subject.to_string())
    }

    /// Registers the callback that receives the id of each PSP with announcements in a commit, before the results of
    /// the writes are returned. It replaces an earlier callback and must not block.
    pub fn on_announced(&self, sender: impl Fn(&str) + Send + Sync + 'static) {
        *self.shared.wakes.sender.write() = Some(Box::new(sender));
    }

    /// Reports that something was announced to this PSP, as a commit does.
    pub fn announce(&self, psp_id: &str) {
        self.shared.wakes.announced([psp_id]);
    }

    /// Wakes the subscribers of a payment or a PSP about which another node has committed something.
    pub fn changed_elsewhere(&self, subject: &str) {
        self.shared.wakes.wake(subject);
    }

    /// Registers the callback that receives the ids of payments and PSPs for which subscribers on other nodes may wait, at
    /// each commit about them. Only the first call has an effect; it must not block.
    pub fn on_committed(&self, notify: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.shared.wakes.elsewhere.set(Box::new(notify));
    }

    /// Returns the number of payments and PSPs with waiting subscribers.
    pub fn waited_for(&self) -> usize {
        self.shared.wakes.subjects.load(Ordering::SeqCst)
    }

    /// Rejects new writes, commits everything queued, and returns when the task has ended. The task must be running;
    /// otherwise use a time limit.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.closed.cancelled().await;
    }

    /// Returns false while groups fail because of the database.
    pub fn is_writing(&self) -> bool {
        self.commit_blocker().is_none()
    }

    /// Returns why and since when groups fail, if they do.
    pub fn commit_blocker(&self) -> Option<CommitBlocker> {
        self.shared.counters.commit_blocker()
    }

    /// Updates the metrics that are not counted as events occur.
    pub fn refresh_metrics(&self) {
        let JournalStats { transitions_queued, initiations_queued, .. } = self.stats();
        self.shared.counters.refresh(transitions_queued, initiations_queued);
    }

    /// Returns the statistics of the journal and the current queue lengths.
    pub fn stats(&self) -> JournalStats {
        let queued = |queue: &mpsc::Sender<Submitted>| queue.max_capacity() - queue.capacity();
        JournalStats {
            transitions_queued: queued(&self.transitions),
            initiations_queued: queued(&self.initiations),
            ..self.shared.counters.read()
        }
    }
}

fn stopped() -> JournalError {
    JournalError::Unavailable("the journal is closed".to_owned())
}

/// Subjects with subscribers.
#[derive(Default)]
struct CommitSubscriptions {
    by_subject: DashMap<String, watch::Sender<()>>,
    /// Number of subjects, so that a commit without subscribers costs only one check.
    subjects: AtomicUsize,
    /// Callback for the ids of PSPs with announcements.
    sender: RwLock<Option<AnnouncementCallback>>,
    /// Callback for the ids of payments and PSPs in commits.
    elsewhere: OnceLock<AnnouncementCallback>,
}

type AnnouncementCallback = Box<dyn Fn(&str) + Send + Sync>;

impl CommitSubscriptions {
    /// Subscribes to commits about `subject`.
    fn subscribe(self: &Arc<Self>, subject: String) -> Wake {
        let receiver = match self.by_subject.entry(subject.clone()) {
            Entry::Occupied(entry) => entry.get().subscribe(),
            Entry::Vacant(entry) => {
                let (sender, receiver) = watch::channel(());
                entry.insert(sender);
                self.subjects.fetch_add(1, Ordering::SeqCst);
                receiver
            }
        };
        Wake { receiver, subject, wakes: Arc::clone(self) }
    }

    /// Notifies about writes that were committed, or may have been.
    fn committed(&self, part: &[Submitted]) {
        let announced = part.iter().filter_map(|submitted| submitted.write.announcements().first());
        self.announced(announced.map(|new| new.event.psp_id.as_str()));
        if let Some(notify) = self.elsewhere.get() {
            for submitted in part {
                if let JournalWrite::Transition(transition) = &submitted.write {
                    notify(&transition.payment.id);
                }
                if let Some(new) = submitted.write.announcements().first() {
                    notify(&new.event.psp_id);
                }
            }
        }
        if self.subjects.load(Ordering::SeqCst) == 0 {
            return;
        }
        for write in part.iter().map(|submitted| &submitted.write) {
            if let JournalWrite::Transition(transition) = write {
                self.wake(&transition.payment.id);
            }
            if let Some(new) = write.announcements().first() {
                self.wake(&new.event.psp_id);
            }
        }
    }

    /// Notifies about announcements to these PSPs.
    fn announced<'a>(&self, psp_ids: impl IntoIterator<Item = &'a str>) {
        if let Some(notify) = &*self.sender.read() {
            psp_ids.into_iter().collect::<BTreeSet<_>>().into_iter().for_each(notify);
        }
    }

    fn wake(&self, subject: &str) {
        if let Some(sender) = self.by_subject.get(subject) {
            sender.send_replace(());
        }
    }
}

/// A subscription to commits about a subject. Subscribe first, then read, so that nothing is missed.
#[derive(derive_more::Debug)]
#[debug("Wake {{ subject: {subject:?}, .. }}")]
pub struct Wake {
    receiver: watch::Receiver<()>,
    subject: String,
    wakes: Arc<CommitSubscriptions>,
}

impl Wake {
    /// Resolves when something about the subject was committed since the subscription or the last wake-up. Several
    /// commits lead to one wake-up.
    pub async fn woken(&mut self) {
        // The sender exists as long as this subscription.
        let _ = self.receiver.changed().await;
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // The receiver of this subscription still exists.
        let last = self.wakes.by_subject.remove_if(&self.subject, |_, sender| sender.receiver_count() <= 1);
        if last.is_some() {
            self.wakes.subjects.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
