//! Counts of payments by status and chain: counted once at the start, in the background, and updated by each commit.
//!
//! The journal reports its commits, and also when no write is in progress. Then a snapshot is taken, so that the count
//! and the reported commits join without a gap. A commit with an unknown outcome triggers a new count.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ::metrics::Histogram;
use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_domain::payment::{HistoryEntry, Payment, Status};
use payferry_entities::{Database, Transaction};
use sea_orm::{ConnectionTrait, DbErr, Statement};
use serde::Serialize;

use super::metrics;

/// Maximum wait for the snapshot of a count. The journal does nothing else meanwhile.
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(500);
/// Minimum interval between the starts of two counts.
const COUNT_PAUSE: Duration = Duration::from_secs(10);
/// Interval of checks if a count is due, while nothing is written.
const COUNT_LOOK: Duration = Duration::from_secs(1);
const CHAINS: usize = Chain::ALL.len();
const STATUSES: usize = Status::ALL.len();

/// Number of payments with one status on one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tallied {
    /// Status.
    pub status: Status,
    /// Chain.
    pub chain: Chain,
    /// Number of payments.
    pub count: u64,
    /// Number of live payments, which have an actor.
    pub live: u64,
}

/// State of a payment that matters for the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Status.
    pub status: Status,
    /// True if the payment has an actor.
    pub live: bool,
}

impl Standing {
    /// State of this payment.
    pub fn of(payment: &Payment) -> Self {
        Self { status: payment.status, live: payment.is_live() }
    }
}

/// Change of the counts by one commit.
#[derive(Debug)]
pub(crate) struct Moved {
    chain: Chain,
    before: Option<Standing>,
    after: Standing,
    /// Entries of the history, starting with the last one before the commit.
    steps: Vec<HistoryEntry>,
}

impl Moved {
    pub(crate) fn made(payment: &Payment) -> Self {
        let (chain, after) = (payment.terms.chain, Standing::of(payment));
        Self { chain, before: None, after, steps: Vec::new() }
    }

    pub(crate) fn between(before: &Payment, after: &Payment) -> Self {
        let known = before.history.len();
        let steps =
            if after.history.len() > known { after.history[known.saturating_sub(1)..].to_vec() } else { Vec::new() };
        let (chain, standing) = (after.terms.chain, Standing::of(after));
        Self { chain, before: Some(Standing::of(before)), after: standing, steps }
    }
}

/// Counts of one tree.
#[derive(Default)]
pub(crate) struct Tally {
    counts: [[AtomicI64; STATUSES]; CHAINS],
    live: [[AtomicI64; STATUSES]; CHAINS],
    steps: Steps,
    count: CountState,
}

/// Relation of the counts to the database.
#[derive(Default)]
struct CountState {
    counted: AtomicBool,
    doubtful: AtomicBool,
    under_way: AtomicBool,
    begun: Mutex<Option<Instant>>,
}

/// A count in progress: the snapshot of the database, and the counts at that time.
pub(crate) struct Count {
    snapshot: Transaction,
    tallied: Cells,
}

impl Tally {
    /// Marks the counts as possibly wrong, so that a new count follows.
    pub(crate) fn doubt(&self) {
        self.count.doubtful.store(true, Ordering::Release);
    }

    /// True if a full count has finished since the start. Until then, the counts only contain commits since the start.
    pub(crate) fn is_counted(&self) -> bool {
        self.count.counted.load(Ordering::Acquire)
    }

    fn is_count_due(&self) -> bool {
        let CountState { doubtful, under_way, begun, .. } = &self.count;
        let has_paused = || begun.lock().is_none_or(|begun| begun.elapsed() >= COUNT_PAUSE);
        doubtful.load(Ordering::Acquire) && !under_way.load(Ordering::Acquire) && has_paused()
    }

    /// Returns once a count is due. It polls, because only a failed count makes another one due, and nothing is waiting
    /// for that.
    pub(crate) async fn count_is_due(&self) {
        while !self.is_count_due() {
            tokio::time::sleep(COUNT_LOOK).await;
        }
    }

    /// Starts a count if one is due, once `settled` reports that no earlier commit is in progress. Call it while
    /// nothing is being committed.
    pub(crate) async fn begin_count(
        &self,
        database: &Database,
        settled: impl Future<Output = Result<(), DbErr>>,
    ) -> Option<Count> {
        if !self.is_count_due() {
            return None;
        }
        let CountState { doubtful, under_way, begun, .. } = &self.count;
        *begun.lock() = Some(Instant::now());
        let snapshot = async {
            settled.await?;
            database.snapshot().await
        };
        match tokio::time::timeout(SNAPSHOT_PATIENCE, snapshot).await {
            Ok(Ok(snapshot)) => {
                doubtful.store(false, Ordering::Release);
                under_way.store(true, Ordering::Release);
                Some(Count { snapshot, tallied: self.cells() })
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "payments cannot currently be counted");
                None
            }
            Err(_) => None,
        }
    }

    /// Finishes a count and corrects the counts. Commits made meanwhile have been added to them.
    pub(crate) async fn finish_count(&self, count: Count) {
        match count.cells().await {
            Ok(found) => {
                for (chain, status) in every() {
                    let by = |of: &Cells| of[chain as usize][status as usize];
                    let (found, tallied) = (by(&found), by(&count.tallied));
                    self.counts[chain as usize][status as usize].fetch_add(found.0 - tallied.0, Ordering::Relaxed);
                    self.live[chain as usize][status as usize].fetch_add(found.1 - tallied.1, Ordering::Relaxed);
                }
                self.count.counted.store(true, Ordering::Release);
            }
            Err(error) => {
                tracing::warn!(%error, "payments could not be counted; retrying");
                self.doubt();
            }
        }
        self.count.under_way.store(false, Ordering::Release);
    }

    fn cells(&self) -> Cells {
        let mut cells = Cells::default();
        for (chain, status) in every() {
            let of =
                |all: &[[AtomicI64; STATUSES]; CHAINS]| all[chain as usize][status as usize].load(Ordering::Relaxed);
            cells[chain as usize][status as usize] = (of(&self.counts), of(&self.live));
        }
        cells
    }

    /// Applies a commit.
    pub(crate) fn committed(&self, moved: &Moved) {
        if let Some(before) = moved.before {
            self.add(moved.chain, before, -1);
        }
        self.add(moved.chain, moved.after, 1);
        for pair in moved.steps.windows(2) {
            self.steps.took(pair[0], pair[1]);
        }
    }

    fn add(&self, chain: Chain, standing: Standing, count: i64) {
        let (chain, status) = (chain as usize, standing.status as usize);
        self.counts[chain][status].fetch_add(count, Ordering::Relaxed);
        if standing.live {
            self.live[chain][status].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts for every status on every chain, including zeros.
    pub(crate) fn read(&self) -> Vec<Tallied> {
        let of = |counts: &[[AtomicI64; STATUSES]; CHAINS], chain: Chain, status: Status| {
            u64::try_from(counts[chain as usize][status as usize].load(Ordering::Relaxed)).unwrap_or_default()
        };
        every()
            .map(|(chain, status)| Tallied {
                status,
                chain,
                count: of(&self.counts, chain, status),
                live: of(&self.live, chain, status),
            })
            .collect()
    }
}

/// Payments, and live payments, by chain and status.
type Cells = [[(i64, i64); STATUSES]; CHAINS];

fn every() -> impl Iterator<Item = (Chain, Status)> {
    Chain::ALL.into_iter().flat_map(|chain| Status::ALL.iter().map(move |status| (chain, *status)))
}

impl Count {
    async fn cells(&self) -> Result<Cells, DbErr> {
        let mut cells = Cells::default();
        let sql = "SELECT chain, status, live, COUNT(*) FROM payments GROUP BY chain, status, live";
        let statement = Statement::from_sql_and_values(self.snapshot.get_database_backend(), sql, []);
        for row in self.snapshot.query_all_raw(statement).await? {
            let chain = row.try_get_by_index::<String>(0)?.parse::<Chain>();
            let status = row.try_get_by_index::<String>(1)?.parse::<Status>();
            let (Ok(chain), Ok(status)) = (chain, status) else { continue };
            let (live, count) = (row.try_get_by_index::<bool>(2)?, row.try_get_by_index::<i64>(3)?);
            let cell = &mut cells[chain as usize][status as usize];
            cell.0 += count;
            cell.1 += if live { count } else { 0 };
        }
        Ok(cells)
    }
}

/// Durations from one status to the next, with a histogram for each pair, created on first use.
#[derive(Default)]
struct Steps {
    handles: [[std::sync::OnceLock<Histogram>; STATUSES]; STATUSES],
}

impl Steps {
    fn took(&self, from: HistoryEntry, to: HistoryEntry) {
        if from.status == to.status {
            return;
        }
        let handle = &self.handles[from.status as usize][to.status as usize];
        let handle = handle.get_or_init(|| metrics::transition_seconds(from.status, to.status));
        let took_ms = to.at.as_millis().saturating_sub(from.at.as_millis()).max(0);
        #[allow(clippy::cast_precision_loss, reason = "times are far below 2^52 ms")]
        handle.record(took_ms as f64 / 1_000.0);
    }
}
