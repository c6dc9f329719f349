//! Counts of payments by status and chain: counted once at the start, in the background, and updated by each commit.
//!
//! The tally observes the journal's commits. Between two commits it takes a snapshot, so that what is counted and what is
//! reported meet without a gap. A commit of unknown outcome has payments counted again. A node that shares the database does
//! not see the commits of other nodes, so it counts again and again instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::metrics::Histogram;
use async_trait::async_trait;
use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_domain::payment::{HistoryEntry, Status};
use payferry_entities::{Transaction, query_all};
use payferry_journal::{CommitObserver, PaymentMove, PaymentState, Quiet};
use sea_orm::DbErr;
use serde::Serialize;
use utoipa::ToSchema;

use super::metrics;

/// Maximum wait for the snapshot of a count. The journal does nothing else meanwhile.
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(500);
/// Minimum interval between the starts of two counts.
const COUNT_PAUSE: Duration = Duration::from_secs(10);
/// The same on a node that shares the database.
const SHARED_COUNT_PAUSE: Duration = Duration::from_secs(30);
/// Interval of checks if a count is due, while nothing is written.
const COUNT_LOOK: Duration = Duration::from_secs(1);
const CHAINS: usize = Chain::ALL.len();
const STATUSES: usize = Status::ALL.len();

/// Number of payments with one status on one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tallied {
    /// Status.
    #[schema(value_type = String)]
    pub status: Status,
    /// Chain.
    #[schema(value_type = String)]
    pub chain: Chain,
    /// Number of payments.
    pub count: u64,
    /// Number of live payments.
    pub live: u64,
}

/// Counts of one tree.
#[derive(Default)]
pub(crate) struct Tally {
    /// True if other nodes may commit.
    is_shared: bool,
    cells: Mutex<Cells>,
    made: AtomicU64,
    ended: AtomicU64,
    steps: Steps,
    count: Mutex<CountState>,
}

/// Payments that this process has made, and has ended, since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) made: u64,
    pub(crate) ended: u64,
}

/// Relation of the counts to the database.
#[derive(Default)]
struct CountState {
    counted: bool,
    doubtful: bool,
    under_way: bool,
    begun: Option<Instant>,
}

/// A count in progress: the snapshot of the database, and the counts at that time.
struct Count {
    snapshot: Transaction,
    tallied: Cells,
}

impl Tally {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    /// Payments that this process has made and ended.
    pub(crate) fn flow(&self) -> Flow {
        Flow { made: self.made.load(Ordering::Relaxed), ended: self.ended.load(Ordering::Relaxed) }
    }

    /// Marks the counts as possibly wrong, so that a new count follows.
    pub(crate) fn doubt(&self) {
        self.count.lock().doubtful = true;
    }

    /// True if a full count has finished since the start. Until then, the counts only contain commits since the start.
    pub(crate) fn is_counted(&self) -> bool {
        self.count.lock().counted
    }

    fn is_count_due(&self) -> bool {
        let CountState { doubtful, under_way, begun, .. } = &*self.count.lock();
        let pause = if self.is_shared { SHARED_COUNT_PAUSE } else { COUNT_PAUSE };
        (*doubtful || self.is_shared) && !under_way && begun.is_none_or(|begun| begun.elapsed() >= pause)
    }

    /// Begins to count, once nothing of before is being committed still.
    async fn begin_count(&self, quiet: Quiet<'_>) -> Option<Count> {
        self.count.lock().begun = Some(Instant::now());
        let snapshot = async {
            // Waits for commits in progress: nothing would count them afterwards. The next count of a node that shares the
            // database does, and the wait would delay all nodes.
            if !self.is_shared {
                quiet.settled().await?;
            }
            quiet.database().snapshot().await
        };
        match tokio::time::timeout(SNAPSHOT_PATIENCE, snapshot).await {
            Ok(Ok(snapshot)) => {
                let mut count = self.count.lock();
                (count.doubtful, count.under_way) = (false, true);
                Some(Count { snapshot, tallied: *self.cells.lock() })
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "payments cannot currently be counted");
                None
            }
            Err(_) => None,
        }
    }

    /// Finishes a count and corrects the counts. Commits made meanwhile have been added to them.
    async fn finish_count(&self, count: Count) {
        let found = count.cells().await;
        let mut state = self.count.lock();
        match found {
            Ok(found) => {
                let mut cells = self.cells.lock();
                for (chain, status) in every() {
                    let by = |of: &Cells| of[chain as usize][status as usize];
                    let (found, tallied) = (by(&found), by(&count.tallied));
                    let cell = &mut cells[chain as usize][status as usize];
                    *cell = (cell.0 + found.0 - tallied.0, cell.1 + found.1 - tallied.1);
                }
                state.counted = true;
            }
            Err(error) => {
                tracing::warn!(%error, "payments could not be counted; retrying");
                state.doubtful = true;
            }
        }
        state.under_way = false;
    }

    /// Counts for every status on every chain, including zeros.
    pub(crate) fn read(&self) -> Vec<Tallied> {
        let cells = *self.cells.lock();
        let positive = |count: i64| u64::try_from(count).unwrap_or_default();
        let tallied = |(chain, status): (Chain, Status)| {
            let (count, live) = cells[chain as usize][status as usize];
            Tallied { status, chain, count: positive(count), live: positive(live) }
        };
        every().map(tallied).collect()
    }
}

#[async_trait]
impl CommitObserver for Tally {
    fn committed(&self, moved: &PaymentMove) {
        for pair in moved.steps.windows(2) {
            self.steps.took(pair[0], pair[1]);
        }
        match moved.before {
            None => self.made.fetch_add(1, Ordering::Relaxed),
            Some(before) => self.ended.fetch_add(u64::from(before.live && !moved.after.live), Ordering::Relaxed),
        };
        if self.is_shared {
            return;
        }
        let mut cells = self.cells.lock();
        let mut add = |state: PaymentState, count: i64| {
            let cell = &mut cells[state.chain as usize][state.status as usize];
            *cell = (cell.0 + count, cell.1 + if state.live { count } else { 0 });
        };
        moved.before.into_iter().for_each(|before| add(before, -1));
        add(moved.after, 1);
    }

    fn outcome_unknown(&self) {
        self.doubt();
    }

    fn wants_pause(&self) -> bool {
        self.is_count_due()
    }

    /// Checks periodically: a count is due after one that failed, and a failed count does not notify this task.
    async fn pause_wanted(&self) {
        while !self.is_count_due() {
            tokio::time::sleep(COUNT_LOOK).await;
        }
    }

    async fn between_commits(self: Arc<Self>, quiet: Quiet<'_>) {
        if let Some(count) = self.begin_count(quiet).await {
            tokio::spawn(async move { self.finish_count(count).await });
        }
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
        for row in query_all(&self.snapshot, sql, []).await? {
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
