//! The task that writes: takes a group, commits it, answers each unit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use payferry_entities::{Database, Failure};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::metrics::JournalMetrics;
use super::queue::Queues;
use super::statements::Statements;
use super::stats::Counters;
use super::wake::Wakes;
use super::write::{Attempt, Losers, attempt, outwait};
use super::{JournalError, NAME, Submitted, Unit};
use crate::observe::{ActorBooks, ActorKind, Books, words_of};

/// How often a group is tried again when another writer was in the way.
const CONTENTION_RETRIES_MAX: u32 = 8;
/// How long a group is tried again for that reason: on SQLite each try waits for the lock itself.
const CONTENTION_PATIENCE: Duration = Duration::from_secs(8);
/// How often a group is tried again when the database is away.
const AWAY_RETRIES_MAX: u32 = 2;
/// The wait before the first further try; doubles with each.
const RETRY_WAIT: Duration = Duration::from_millis(10);
/// The wait before a task that panicked runs again; doubles up to [`RESTART_WAIT_MAX`] with each panic in a row.
const RESTART_WAIT: Duration = Duration::from_millis(20);
/// The longest wait before a task that panicked runs again.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);
/// A task that ran this long has recovered: the next panic counts as the first.
const RESTART_RECOVERED: Duration = Duration::from_mins(1);

/// What the handle and the task share. The queues stand here and not in the task, so that they survive it.
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) statements: Statements,
    pub(super) queues: Mutex<Queues>,
    /// Transitions with announcements that were said to come.
    pub(super) announced: Arc<AtomicUsize>,
    pub(super) counters: Counters,
    pub(super) metrics: JournalMetrics,
    pub(super) books: Books,
    /// Who waits for commits.
    pub(super) wakes: Arc<Wakes>,
    /// Whether a commit of before may still be under way.
    pub(super) is_wary: AtomicBool,
    /// The journal's own among them.
    pub(super) own: Arc<ActorBooks>,
    /// Asked to flush and stop.
    pub(super) closing: CancellationToken,
    /// Flushed and stopped.
    pub(super) closed: CancellationToken,
    #[cfg(test)]
    pub(super) faults: super::tests::Faults,
}

/// The journal's task, to be run by a supervisor.
#[derive(Clone)]
pub struct JournalTask {
    pub(super) shared: Arc<Shared>,
}

impl JournalTask {
    /// Writes until the journal is closed and flushed. If it panics, run it again: handles and queues are as they were,
    /// and the units it was writing have been answered with [`JournalError::Unknown`]. A second one beside it waits.
    pub async fn run(self) {
        let shared = &self.shared;
        let mut queues = shared.queues.lock().await;
        let _presence = shared.books.present(ActorKind::Journal, NAME);
        loop {
            shared.count_payments().await;
            let mut group = shared.next_group(&mut queues).await;
            if group.is_empty() {
                break;
            }
            take(&mut group);
            shared.commit(group).await;
        }
        shared.closed.cancel();
    }

    /// Runs the task, and again whenever it panics, with back-off, until the journal is closed. `on_panic` is told the
    /// reason each time. Dropping the future stops the task.
    pub async fn supervise(self, mut on_panic: impl FnMut(&str)) {
        let mut wait = RESTART_WAIT;
        loop {
            let started = Instant::now();
            let Err(error) = AbortOnDropHandle::new(tokio::spawn(self.clone().run())).await else { return };
            if !error.is_panic() {
                return;
            }
            let reason = words_of(error.into_panic());
            self.shared.counters.panics.fetch_add(1, Ordering::Relaxed);
            on_panic(&reason);
            if started.elapsed() >= RESTART_RECOVERED {
                wait = RESTART_WAIT;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RESTART_WAIT_MAX);
        }
    }
}

impl Shared {
    /// The next group. While there is none, payments are counted if that is called for: where nothing is written, a count that
    /// failed would not be made up for otherwise.
    async fn next_group(&self, queues: &mut Queues) -> Vec<Submitted> {
        // It must not be dropped half-way: it holds the units that it has taken.
        let mut next = std::pin::pin!(queues.next_group(&self.closing));
        loop {
            tokio::select! {
                biased;
                group = &mut next => return group,
                () = self.books.tally().count_is_due() => self.count_payments().await,
            }
        }
    }

    /// Commits the group, or what can be committed of it, and answers every unit.
    async fn commit(&self, group: Vec<Submitted>) {
        // What is left of the group; the next part last.
        let mut parts = vec![group];
        while let Some(part) = parts.pop() {
            match self.commit_part(part).await {
                Part::Left(left) => parts.extend(left.into_iter().rev()),
                Part::Away(reason) => {
                    // The rest would only wait as long again.
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
        let mut outdone = Outdone::default();
        while !part.is_empty() {
            let begun = Instant::now();
            let attempt = self.attempt(&part).await;
            if let Attempt::Failed(Failure::Contention | Failure::Away, error) | Attempt::Unknown(error) = &attempt {
                self.counters.hindered(Failure::words(error), self.books.now());
            }
            match attempt {
                Attempt::Committed(receipts) => {
                    self.committed(&part, begun.elapsed());
                    self.wakes.committed(&part);
                    for (submitted, receipt) in part.drain(..).zip(receipts) {
                        // Whoever asked may have stopped waiting; the commit stands.
                        let _ = submitted.answer.send(Ok(receipt));
                    }
                    for (submitted, error) in outdone.losers.drain(..) {
                        self.lose(submitted, error);
                    }
                }
                Attempt::Lost(losers) => {
                    let lost;
                    (part, lost) = outdone.part(part, losers);
                    for (submitted, error) in lost {
                        self.lose(submitted, error);
                    }
                }
                Attempt::Failed(Failure::Contention, error) => {
                    if since.elapsed() >= CONTENTION_PATIENCE {
                        // Somebody holds on to the database: whoever waits is to hear it.
                        tracing::error!(%error, units = part.len(), "the journal's database is held by another writer");
                        return self.give_up(part, outdone, error.to_string());
                    }
                    if contended == CONTENTION_RETRIES_MAX {
                        self.refuse(part, &JournalError::Unavailable(error.to_string()));
                        return Part::Left(outdone.left());
                    }
                    self.try_again_in(RETRY_WAIT * 2_u32.pow(contended)).await;
                    contended += 1;
                }
                Attempt::Failed(Failure::Away, error) => {
                    if away == AWAY_RETRIES_MAX {
                        tracing::error!(%error, units = part.len(), "the journal cannot reach its database");
                        return self.give_up(part, outdone, error.to_string());
                    }
                    self.try_again_in(RETRY_WAIT * 2_u32.pow(away)).await;
                    away += 1;
                }
                Attempt::Failed(Failure::Request, error) => {
                    if part.len() == 1 {
                        self.counters.refused.fetch_add(1, Ordering::Relaxed);
                        self.metrics.refused.increment(1);
                        self.refuse(part, &JournalError::Refused(error.to_string()));
                        return Part::Left(outdone.left());
                    }
                    // Some unit is bad: each half is tried by itself.
                    let second = part.split_off(part.len() / 2);
                    return Part::Left([part, second].into_iter().chain(outdone.left()).collect());
                }
                Attempt::Unknown(error) => {
                    self.is_wary.store(true, Ordering::Release);
                    self.books.tally().doubt();
                    self.wakes.committed(&part);
                    tracing::error!(%error, units = part.len(), "the journal does not know whether its commit was made");
                    self.refuse(part, &JournalError::Unknown(error.to_string()));
                    return Part::Left(outdone.left());
                }
            }
        }
        Part::Left(outdone.left())
    }

    async fn try_again_in(&self, wait: Duration) {
        self.counters.retries.fetch_add(1, Ordering::Relaxed);
        self.metrics.retries.increment(1);
        tokio::time::sleep(wait).await;
    }

    /// The database is away, for all of them.
    fn give_up(&self, part: Vec<Submitted>, outdone: Outdone, reason: String) -> Part {
        for part in [part].into_iter().chain(outdone.left()) {
            self.refuse(part, &JournalError::Unavailable(reason.clone()));
        }
        Part::Away(reason)
    }

    /// Answers a unit that lost a gate.
    fn lose(&self, submitted: Submitted, error: JournalError) {
        self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
        self.metrics.conflicts.increment(1);
        let _ = submitted.answer.send(Err(error));
    }

    /// Has payments counted if that is called for; nothing is being committed.
    async fn count_payments(&self) {
        // Not without what may be committed still: nothing would count it afterwards.
        let settled = outwait(&self.database, "payments");
        if let Some(count) = self.books.tally().begin_count(&self.database, settled).await {
            let books = self.books.clone();
            tokio::spawn(async move { books.tally().finish_count(count).await });
        }
    }

    /// Counts a group that is committed.
    fn committed(&self, part: &[Submitted], took: Duration) {
        self.counters.committed(part.len(), took);
        self.metrics.committed(part.len(), took);
        self.own.handled(took);
        for moved in part.iter().filter_map(|submitted| submitted.unit.moved()) {
            self.books.tally().committed(moved);
        }
    }

    async fn attempt(&self, part: &[Submitted]) -> Attempt {
        let units: Vec<&Unit> = part.iter().map(|submitted| &submitted.unit).collect();
        #[cfg(test)]
        if let Some(faulted) = self.faults.strike(&self.database, &self.statements, &units).await {
            return faulted;
        }
        // Its events have places in the feed before those of this group, and must not show up after them.
        if self.is_wary.load(Ordering::Acquire) {
            if let Err(error) = outwait(&self.database, "events").await {
                return Attempt::Failed(Failure::of(&error), error);
            }
            self.is_wary.store(false, Ordering::Release);
        }
        attempt(&self.database, &self.statements, &units).await
    }

    fn refuse(&self, part: Vec<Submitted>, error: &JournalError) {
        let uncommitted = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.counters.failed.fetch_add(uncommitted, Ordering::Relaxed);
        self.metrics.failed.increment(uncommitted);
        for submitted in part {
            let _ = submitted.answer.send(Err(error.clone()));
        }
    }
}

/// Ends the group's wait.
fn take(group: &mut [Submitted]) {
    let now = std::time::Instant::now();
    group.iter_mut().filter_map(|submitted| submitted.waits.take()).for_each(|stamp| stamp.taken(now));
}

/// What became of a part of a group.
enum Part {
    /// These are still to be written, in this order, each by itself; all others were answered.
    Left(Vec<Vec<Submitted>>),
    /// The database is away; every unit was answered.
    Away(String),
}

/// Units that lost to money which others of their group promised. They have lost once those are written, and are tried again
/// if those are not.
#[derive(Default)]
struct Outdone {
    losers: Vec<(Submitted, JournalError)>,
    again: Vec<Submitted>,
}

impl Outdone {
    /// Parts what is to be attempted once more from what has lost for good.
    fn part(&mut self, part: Vec<Submitted>, losers: Losers) -> (Vec<Submitted>, Vec<(Submitted, JournalError)>) {
        let Losers { mut lost, outdone } = losers;
        // A promise that counted in the attempt before is not made after all: it may have been what they lost to.
        if part
            .iter()
            .enumerate()
            .any(|(place, submitted)| lost.contains_key(&place) && submitted.unit.reserve().is_some())
        {
            self.again.extend(self.losers.drain(..).map(|(submitted, _)| submitted));
        }
        let (mut kept, mut answered) = (Vec::with_capacity(part.len()), Vec::new());
        for (place, submitted) in part.into_iter().enumerate() {
            match lost.remove(&place) {
                Some(error) if outdone.contains(&place) => self.losers.push((submitted, error)),
                Some(error) => answered.push((submitted, error)),
                None => kept.push(submitted),
            }
        }
        (kept, answered)
    }

    /// Those that were not answered.
    fn left(self) -> Vec<Vec<Submitted>> {
        let left: Vec<Submitted> =
            self.again.into_iter().chain(self.losers.into_iter().map(|(submitted, _)| submitted)).collect();
        if left.is_empty() { Vec::new() } else { vec![left] }
    }
}
