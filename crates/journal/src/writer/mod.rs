//! The group-commit writer: every write of the payment side goes through it, and new customers, as typed units.
//!
//! Owned here: the queues and their limits, which units share a commit, the order of statements in it, and what becomes
//! of a unit that loses a gate or that the database refuses. Deliberately absent: what a unit means (`payments`
//! builds those of payments), and every read.

mod gates;
mod insert;
mod ledger;
mod metrics;
mod new_payments;
mod observer;
mod queue;
mod rows;
mod statements;
mod stats;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod unit;
mod wake;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use payferry_entities::Database;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use observer::{CommitObserver, PaymentMove, PaymentStanding, Quiet};
pub use queue::{GROUP_INITIATIONS_MIN, GROUP_UNITS_MAX, GROUP_WAIT, INITIATIONS_QUEUED_MAX, TRANSITIONS_QUEUED_MAX};
pub use stats::{Hindrance, JournalStats};
pub use task::JournalTask;
pub use unit::{
    AppliedTransfer, Carried, ChainBatch, ChainTxOutcome, CustomerCreation, DELIVERY_RETRIES_MAX, DaySends,
    DeliveryOutcome, Initiation, NewEvent, OperationChange, OperationOutcome, Receipt, Refusal, RefusedOperation,
    Renumbering, Reserve, SendingChange, SignedOperation, Submission, TransfersApplied, Transition, Unit,
};
pub use wake::Wake;

use metrics::JournalMetrics;
pub use metrics::{COMMIT_SECONDS, GROUP_UNITS};
use observer::NoObserver;
use payferry_runtime::observe::{ActorBooks, ActorKind, Books, Stamp};
use queue::Queues;
use statements::Statements;
use stats::Counters;
use task::Shared;
pub use write::counter_of_operations;

/// Why a unit was not written, or not known to be.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// A gate was lost: somebody else moved the row (version, cursor, nonce, operation). Reload and decide again.
    #[error("the row has moved on")]
    Conflict,
    /// The idempotency key is taken: read the answer kept with it.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// The PSP's balance does not have what is to be sent; nothing was written.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// More would be sent on this day than the ceiling allows; nothing was written.
    #[error("the ceiling of what may be sent on one day is reached")]
    AboveDailyLimit,
    /// The queue is full; nothing was written.
    #[error("the journal's queue is full")]
    Busy,
    /// The database is away or refused; nothing was written.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The commit was sent and no answer came: it may or may not have happened. Reload.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
    /// This unit alone is bad (a constraint, a value the database refuses); nothing of it was written.
    #[error("the database refused the unit: {0}")]
    Refused(String),
}

/// The journal's name among the actors.
pub const NAME: &str = "journal";

/// A unit on its way, with the place its answer goes.
pub(crate) struct Submitted {
    unit: Unit,
    answer: oneshot::Sender<Result<Receipt, JournalError>>,
    /// Until it is taken into a group.
    waits: Option<Stamp>,
}

/// Handle to the journal. Clones share the queues.
#[derive(Clone)]
pub struct Journal {
    transitions: mpsc::Sender<Submitted>,
    initiations: mpsc::Sender<Submitted>,
    posts: bool,
    shared: Arc<Shared>,
}

impl Journal {
    /// Opens the queues. Nothing is written before the task runs; see [`JournalTask::supervise`].
    pub fn start(database: Database) -> (Self, JournalTask) {
        Self::start_with(database, Books::default(), Arc::new(NoObserver))
    }

    /// As [`Journal::start`], with these books and this observer of its commits.
    pub fn start_with(database: Database, books: Books, observer: Arc<dyn CommitObserver>) -> (Self, JournalTask) {
        let (transitions, transitions_queue) = mpsc::channel(TRANSITIONS_QUEUED_MAX);
        let (initiations, initiations_queue) = mpsc::channel(INITIATIONS_QUEUED_MAX);
        let announced = Arc::new(AtomicUsize::new(0));
        let queues = Queues::new(transitions_queue, initiations_queue, Arc::clone(&announced));
        let shared = Arc::new(Shared {
            statements: Statements::new(database.backend()),
            database,
            queues: Mutex::new(queues),
            announced,
            counters: Counters::default(),
            metrics: JournalMetrics::new(),
            own: books.of(ActorKind::Journal, NAME),
            books,
            observer,
            wakes: Arc::default(),
            // The process before this one may have been cut off in a commit.
            is_wary: AtomicBool::new(true),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            #[cfg(test)]
            faults: tests::Faults::default(),
        });
        let task = JournalTask { shared: Arc::clone(&shared) };
        (Self { transitions, initiations, posts: true, shared }, task)
    }

    /// The same, and nothing is posted to the ledger.
    pub fn without_postings(self) -> Self {
        Self { posts: false, ..self }
    }

    /// Writes `unit` and answers after its commit. A new payment or customer is refused ([`JournalError::Busy`]) while the queue of
    /// initiations is full; everything else waits for room. Once it is queued it is written, even if the caller stops
    /// waiting.
    pub async fn submit(&self, mut unit: Unit) -> Result<Receipt, JournalError> {
        if !self.posts {
            unit.drop_postings();
        }
        let (answer, answered) = oneshot::channel();
        let is_new = unit.is_new();
        let submitted = Submitted { unit, answer, waits: Some(Stamp::new(self.books())) };
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

    /// Says that so many transitions are about to be submitted that announce something. They are written together, before
    /// what nobody waits for; if fewer come, the others are written all the same, a moment later.
    pub fn expect_announcements(&self, count: usize) {
        self.shared.announced.fetch_add(count, Ordering::Relaxed);
    }

    fn books(&self) -> &Arc<ActorBooks> {
        &self.shared.own
    }

    /// Wakes whenever something is committed about this payment, or announced to this PSP; by its id.
    pub fn wake_on(&self, subject: impl fmt::Display) -> Wake {
        self.shared.wakes.subscribe(subject.to_string())
    }

    /// From now on, `sender` is told the id of each PSP to whom a commit announces something, before whoever wrote it is
    /// answered, and in the place of any `sender` before it. It must not block.
    pub fn tell_announced(&self, sender: impl Fn(&str) + Send + Sync + 'static) {
        self.shared.wakes.tell_announced(Box::new(sender));
    }

    /// Reports that something was announced to this PSP, as a commit does.
    pub fn announce(&self, psp_id: &str) {
        self.shared.wakes.announced([psp_id]);
    }

    /// Payments and PSPs whose commits somebody waits for.
    pub fn waited_for(&self) -> usize {
        self.shared.wakes.len()
    }

    /// Lets nothing more in, commits everything queued, and returns when that is done and the task has ended. Needs the
    /// task to be running; give it a time limit where it may not be.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.closed.cancelled().await;
    }

    /// Whether the database takes what is written, as far as is known: `false` while groups fail.
    pub fn is_writing(&self) -> bool {
        self.hindrance().is_none()
    }

    /// Why it does not, and since when.
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.shared.counters.hindrance()
    }

    /// Shows what is not counted as it happens.
    pub fn refresh_metrics(&self) {
        let JournalStats { transitions_queued, initiations_queued, .. } = self.stats();
        self.shared.metrics.refresh(transitions_queued, initiations_queued, !self.is_writing());
    }

    /// What the journal did so far, and how long its queues are now.
    pub fn stats(&self) -> JournalStats {
        let queued = |queue: &mpsc::Sender<Submitted>| queue.max_capacity() - queue.capacity();
        JournalStats {
            transitions_queued: queued(&self.transitions),
            initiations_queued: queued(&self.initiations),
            ..self.shared.counters.read()
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn stopped() -> JournalError {
    JournalError::Unavailable("the journal is closed".to_owned())
}
