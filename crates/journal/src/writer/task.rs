//! The task that takes a group, commits it, and returns the result of each write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use payferry_entities::{Database, DatabaseFailure};
use payferry_runtime::observe::{ActorKind, ActorMetrics, ActorRegistry, panic_text};
use payferry_runtime::supervise::{RestartPause, doubled};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::observer::{CommitObserver, Quiet};
use super::preconditions::Preconditions;
use super::queue::Queues;
use super::statements::Statements;
use super::stats::{self, Counters};
use super::write::{Attempt, attempt};
use super::{CommitSubscriptions, JournalError, JournalWrite, NAME, Submitted};
use crate::violations;

/// Maximum number of retries because of another writer.
const CONTENTION_RETRIES_MAX: u32 = 8;
/// Maximum time of these retries. On SQLite each attempt itself waits for the lock.
const CONTENTION_PATIENCE: Duration = Duration::from_secs(8);
/// Maximum number of retries while the database is unavailable.
const AWAY_RETRIES_MAX: u32 = 2;
/// Delay before the first retry; doubles with each retry.
const RETRY_WAIT: Duration = Duration::from_millis(10);
/// Delay before a task that panicked is restarted; doubles with each consecutive panic, up to [`RESTART_WAIT_MAX`].
const RESTART_WAIT: Duration = Duration::from_millis(20);
/// Longest delay before a restart.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);

/// State shared by the handle and the task. The queues are here, not in the task, so that they survive a panic.
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) statements: Statements,
    pub(super) queues: Mutex<Queues>,
    /// Number of expected transitions with announcements.
    pub(super) announced: Arc<AtomicUsize>,
    pub(super) counters: Counters,
    pub(super) registry: ActorRegistry,
    /// Receives the committed changes.
    pub(super) observer: Arc<dyn CommitObserver>,
    /// Subscribers of commits.
    pub(super) wakes: Arc<CommitSubscriptions>,
    /// Metrics of the journal itself.
    pub(super) own: Arc<ActorMetrics>,
    /// Cancelled to request a flush and stop.
    pub(super) closing: CancellationToken,
    /// Cancelled after the flush and stop.
    pub(super) closed: CancellationToken,
    #[cfg(test)]
    pub(super) faults: super::tests::Faults,
}

/// The task of the journal, run by a supervisor.
#[derive(Clone)]
pub struct JournalTask {
    pub(super) shared: Arc<Shared>,
}

impl JournalTask {
    /// Writes until the journal is closed and flushed. After a panic, run it again: handles and queues are unchanged,
    /// and the writes of the current group got [`JournalError::Unknown`]. A second concurrent task waits.
    pub async fn run(self) {
        let shared = &self.shared;
        let mut queues = shared.queues.lock().await;
        let _presence = shared.registry.present(ActorKind::Journal, NAME);
        loop {
            shared.pause().await;
            let mut group = shared.next_group(&mut queues).await;
            if group.is_empty() {
                break;
            }
            take(&mut group);
            shared.commit(group).await;
        }
        shared.closed.cancel();
    }

    /// Runs the task and restarts it with back-off after each panic, until the journal is closed. `on_panic` receives
    /// the reason. Dropping the future stops the task.
    pub async fn supervise(self, mut on_panic: impl FnMut(&str)) {
        let mut pause = RestartPause::new(RESTART_WAIT, RESTART_WAIT_MAX);
        loop {
            pause.started();
            let Err(error) = AbortOnDropHandle::new(tokio::spawn(self.clone().run())).await else { return };
            if !error.is_panic() {
                return;
            }
            let reason = panic_text(error.into_panic());
            self.shared.counters.panics.fetch_add(1, Ordering::Relaxed);
            on_panic(&reason);
            tokio::time::sleep(pause.after_failure()).await;
        }
    }
}

impl Shared {
    /// The next group. While there is none, the observer gets a pause whenever it wants one.
    async fn next_group(&self, queues: &mut Queues) -> Vec<Submitted> {
        // This future must not be dropped before it completes, because it holds the writes that it has taken.
        let mut next = std::pin::pin!(queues.next_group(&self.closing));
        loop {
            tokio::select! {
                biased;
                group = &mut next => return group,
                () = self.observer.pause_wanted() => self.pause().await,
            }
        }
    }

    /// Commits the group, or as much of it as possible, and returns the result of each write.
    async fn commit(&self, group: Vec<Submitted>) {
        // Remaining parts of the group; the next part is the last element.
        let mut parts = vec![group];
        while let Some(part) = parts.pop() {
            match self.commit_part(part).await {
                Part::Left(left) => parts.extend(left.into_iter().rev()),
                Part::Away(reason) => {
                    // The other parts would only wait just as long.
                    for part in parts.drain(..) {
                        self.refuse(part, &JournalError::Unavailable(reason.clone()));
                    }
                }
            }
        }
    }

    async fn commit_part(&self, mut part: Vec<Submitted>) -> Part {
        let since = Instant::now();
        let mut contended = 0;
        let mut away = 0;
        let mut lost_reservations = LostReservations::default();
        while !part.is_empty() {
            let begun = Instant::now();
            let attempt = self.attempt(&part).await;
            if let Attempt::Failed(DatabaseFailure::Contention | DatabaseFailure::Away, error)
            | Attempt::Unknown(error) = &attempt
            {
                self.counters.hindered(DatabaseFailure::words(error), self.registry.now().into());
            }
            match attempt {
                Attempt::Committed(receipts) => {
                    self.committed(&part, begun.elapsed());
                    self.wakes.committed(&part);
                    for (submitted, receipt) in part.drain(..).zip(receipts) {
                        // The caller may have stopped waiting; the commit remains valid.
                        let _ = submitted.answer.send(Ok(receipt));
                    }
                    for (submitted, error) in lost_reservations.rejected.drain(..) {
                        self.lose(submitted, error);
                    }
                }
                Attempt::Lost(rejected) => {
                    let lost;
                    (part, lost) = lost_reservations.part(part, rejected);
                    for (submitted, error) in lost {
                        self.lose(submitted, error);
                    }
                }
                Attempt::Failed(DatabaseFailure::Contention, error) => {
                    if since.elapsed() >= CONTENTION_PATIENCE {
                        // Another writer blocks the database for a long time, so the callers get an error.
                        tracing::error!(%error, writes = part.len(), "another writer blocks the journal's database");
                        return self.give_up(part, lost_reservations, error.to_string());
                    }
                    if contended == CONTENTION_RETRIES_MAX {
                        self.refuse(part, &JournalError::Unavailable(error.to_string()));
                        return Part::Left(lost_reservations.left());
                    }
                    self.try_again_in(doubled(RETRY_WAIT, Duration::MAX, contended)).await;
                    contended += 1;
                }
                Attempt::Failed(DatabaseFailure::Away, error) => {
                    if away == AWAY_RETRIES_MAX {
                        tracing::error!(%error, writes = part.len(), "the journal's database is unavailable");
                        return self.give_up(part, lost_reservations, error.to_string());
                    }
                    self.try_again_in(doubled(RETRY_WAIT, Duration::MAX, away)).await;
                    away += 1;
                }
                Attempt::Failed(DatabaseFailure::Request, error) => {
                    if part.len() == 1 {
                        self.counters.refused.add(1);
                        violations::refused(&error);
                        self.refuse(part, &JournalError::Refused(error.to_string()));
                        return Part::Left(lost_reservations.left());
                    }
                    // At least one write is invalid: try each half separately.
                    let second = part.split_off(part.len() / 2);
                    return Part::Left([part, second].into_iter().chain(lost_reservations.left()).collect());
                }
                Attempt::Unknown(error) => {
                    self.observer.outcome_unknown();
                    self.wakes.committed(&part);
                    tracing::error!(%error, writes = part.len(), "the outcome of a commit of the journal is unknown");
                    self.refuse(part, &JournalError::Unknown(error.to_string()));
                    return Part::Left(lost_reservations.left());
                }
            }
        }
        Part::Left(lost_reservations.left())
    }

    async fn try_again_in(&self, wait: Duration) {
        self.counters.retries.add(1);
        tokio::time::sleep(wait).await;
    }

    /// Fails all writes because the database is unavailable.
    fn give_up(&self, part: Vec<Submitted>, lost_reservations: LostReservations, reason: String) -> Part {
        for part in [part].into_iter().chain(lost_reservations.left()) {
            self.refuse(part, &JournalError::Unavailable(reason.clone()));
        }
        Part::Away(reason)
    }

    /// Returns the error of a failed precondition.
    fn lose(&self, submitted: Submitted, error: JournalError) {
        self.counters.conflicts.add(1);
        if matches!(error, JournalError::LeaseLost) {
            stats::FENCE_LOST.add(&[], 1);
        }
        let _ = submitted.answer.send(Err(error));
    }

    /// Lets the observer look at the database if it wants to; nothing is being committed.
    async fn pause(&self) {
        if self.observer.wants_pause() {
            Arc::clone(&self.observer).between_commits(Quiet { database: &self.database }).await;
        }
    }

    /// Counts a committed group.
    fn committed(&self, part: &[Submitted], took: Duration) {
        self.counters.committed(part.len(), took);
        self.own.handled(took);
        for moved in part.iter().filter_map(|submitted| submitted.write.moved()) {
            self.observer.committed(moved);
        }
    }

    async fn attempt(&self, part: &[Submitted]) -> Attempt {
        let writes: Vec<&JournalWrite> = part.iter().map(|submitted| &submitted.write).collect();
        #[cfg(test)]
        if let Some(faulted) = self.faults.strike(&self.database, &self.statements, &writes).await {
            return faulted;
        }
        attempt(&self.database, &self.statements, &writes).await
    }

    fn refuse(&self, part: Vec<Submitted>, error: &JournalError) {
        self.counters.failed.add(part.len());
        for submitted in part {
            let _ = submitted.answer.send(Err(error.clone()));
        }
    }
}

/// Ends the waiting time of the group.
fn take(group: &mut [Submitted]) {
    let now = std::time::Instant::now();
    group.iter_mut().filter_map(|submitted| submitted.waits.take()).for_each(|stamp| stamp.taken(now));
}

/// Result of a part of a group.
enum Part {
    /// The remaining parts, to be written separately in this order. All other writes got a result.
    Left(Vec<Vec<Submitted>>),
    /// The database is unavailable; every write got a result.
    Away(String),
}

/// Writes that failed because other writes of their group reserved the funds. They fail when those writes are
/// committed, and are retried otherwise.
#[derive(Default)]
struct LostReservations {
    rejected: Vec<(Submitted, JournalError)>,
    again: Vec<Submitted>,
}

impl LostReservations {
    /// Separates the writes to attempt again from those that have finally failed.
    fn part(&mut self, part: Vec<Submitted>, found: Preconditions) -> (Vec<Submitted>, Vec<(Submitted, JournalError)>) {
        let Preconditions { mut lost, lost_reservations, .. } = found;
        // A reservation of the previous attempt is not made, and it may have been the reason for these failures.
        if part
            .iter()
            .enumerate()
            .any(|(place, submitted)| lost.contains_key(&place) && submitted.write.reserve().is_some())
        {
            self.again.extend(self.rejected.drain(..).map(|(submitted, _)| submitted));
        }
        let (mut kept, mut answered) = (Vec::with_capacity(part.len()), Vec::new());
        for (place, submitted) in part.into_iter().enumerate() {
            match lost.remove(&place) {
                Some(error) if lost_reservations.contains(&place) => self.rejected.push((submitted, error)),
                Some(error) => answered.push((submitted, error)),
                None => kept.push(submitted),
            }
        }
        (kept, answered)
    }

    /// Returns the writes without a result.
    fn left(self) -> Vec<Vec<Submitted>> {
        let left: Vec<Submitted> =
            self.again.into_iter().chain(self.rejected.into_iter().map(|(submitted, _)| submitted)).collect();
        if left.is_empty() { Vec::new() } else { vec![left] }
    }
}
