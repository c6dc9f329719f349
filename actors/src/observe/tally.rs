//! Payments by status and chain: counted once at the start, then kept by each commit.

use std::sync::atomic::{AtomicI64, Ordering};

use ::metrics::Histogram;
use payferry_domain::Chain;
use payferry_domain::payment::{HistoryEntry, Payment, Status};
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbErr, Statement};
use serde::Serialize;

use super::metrics;

const CHAINS: usize = Chain::ALL.len();
const STATUSES: usize = Status::ALL.len();

/// Payments of one status on one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tallied {
    /// Where they stand.
    pub status: Status,
    /// On which chain.
    pub chain: Chain,
    /// How many there are.
    pub count: u64,
    /// How many of them want an actor.
    pub live: u64,
}

/// Where a payment stands, as far as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its status.
    pub status: Status,
    /// Whether it wants an actor.
    pub live: bool,
}

impl Standing {
    /// Of this payment.
    pub fn of(payment: &Payment) -> Self {
        Self { status: payment.status, live: payment.is_live() }
    }
}

/// What a commit changes of the tally.
#[derive(Debug)]
pub(crate) struct Moved {
    chain: Chain,
    before: Option<Standing>,
    after: Standing,
    /// Entries of the history from the last one before the commit on.
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

/// The tally of one tree.
#[derive(Default)]
pub(crate) struct Tally {
    counts: [[AtomicI64; STATUSES]; CHAINS],
    live: [[AtomicI64; STATUSES]; CHAINS],
    steps: Steps,
}

impl Tally {
    /// Counts what is in the database. To be called before anything is committed.
    pub(crate) async fn count(&self, database: &Database) -> Result<(), DbErr> {
        // PSPs are named so that an index holds all that is asked for.
        let sql = "SELECT chain, status, live, COUNT(*) FROM payments GROUP BY chain, status, live";
        let statement = Statement::from_sql_and_values(database.backend(), sql, []);
        for row in database.reader().query_all_raw(statement).await? {
            let chain = row.try_get_by_index::<String>(0)?.parse::<Chain>();
            let status = row.try_get_by_index::<String>(1)?.parse::<Status>();
            let (Ok(chain), Ok(status)) = (chain, status) else { continue };
            let (live, count) = (row.try_get_by_index::<bool>(2)?, row.try_get_by_index::<i64>(3)?);
            self.add(chain, Standing { status, live }, count);
        }
        Ok(())
    }

    /// A commit was made.
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

    /// Every status on every chain, also where there are none.
    pub(crate) fn read(&self) -> Vec<Tallied> {
        let of = |counts: &[[AtomicI64; STATUSES]; CHAINS], chain: Chain, status: Status| {
            u64::try_from(counts[chain as usize][status as usize].load(Ordering::Relaxed)).unwrap_or_default()
        };
        let all = Chain::ALL.into_iter().flat_map(|chain| Status::ALL.iter().map(move |status| (chain, *status)));
        all.map(|(chain, status)| Tallied {
            status,
            chain,
            count: of(&self.counts, chain, status),
            live: of(&self.live, chain, status),
        })
        .collect()
    }
}

/// Times from one status to the next; a handle for each pair, made when it is first met.
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
