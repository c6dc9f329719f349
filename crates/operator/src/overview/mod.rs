//! Data of the overview.

pub(crate) mod page;

use payferry_actors::System;
use payferry_actors::observe::{QuarantinedSubject, Tallied, TreeView};
use payferry_journal::JournalStats;
use payferry_runtime::observe::{Incident, KindView};
use serde::Serialize;

use crate::chains::{self, ChainLine};
use crate::health::{self, Readiness};
use crate::query::{if_by, soon};
use crate::webhooks::{self, Webhooks};

/// Maximum number of log entries, the newest.
pub const INCIDENTS_MAX: usize = 25;
/// Maximum number of quarantined actors, the oldest.
pub const QUARANTINED_MAX: usize = 10;

/// Data of the overview.
#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    /// Readiness for payments, with the reasons why not.
    pub readiness: Readiness,
    /// Permanent actors. Payments are counted in their shards, payouts and withdrawals at their supervisor.
    pub tree: TreeView,
    /// Figures of every kind of actor.
    pub kinds: Vec<KindView>,
    /// Number of quarantined payments.
    pub payments_quarantined: usize,
    /// Number of quarantined payouts and withdrawals.
    pub sendings_quarantined: usize,
    /// First [`QUARANTINED_MAX`] of the quarantined actors.
    pub quarantined: Vec<QuarantinedSubject>,
    /// Supervision log, newest first, at most [`INCIDENTS_MAX`] entries.
    pub incidents: Vec<Incident>,
    /// Number of stored log entries.
    pub incidents_kept: usize,
    /// Payments by status and chain. `None` until the count after the start is complete.
    pub payments: Option<Vec<Tallied>>,
    /// Chains and their settlers.
    pub chains: Vec<ChainLine>,
    /// Undelivered events. `None` if the database does not answer in time.
    pub webhooks: Option<Webhooks>,
    /// Journal.
    pub journal: JournalLine,
}

/// State of the journal.
#[derive(Debug, Clone, Serialize)]
pub struct JournalLine {
    /// True if the last known writes to the database succeeded.
    pub writing: bool,
    /// Statistics since the service started.
    #[serde(flatten)]
    pub stats: JournalStats,
}

/// Reads the overview. Data that only the database has is missing while the database is down.
pub async fn overview(system: &System) -> Overview {
    let readiness = health::readiness(system).await;
    let (mut works, mut undelivered) = (None, None);
    if readiness.database.reads {
        let deadline = soon();
        (works, undelivered) = tokio::join!(
            if_by(deadline, "settler work", chains::works(system)),
            if_by(deadline, "undelivered events", webhooks::webhooks(system)),
        );
    }
    let view = system.observe();
    Overview {
        readiness,
        tree: system.tree(),
        kinds: system.kinds(),
        payments_quarantined: view.payments_quarantined,
        sendings_quarantined: view.sendings_quarantined,
        quarantined: system.given_up(None, QUARANTINED_MAX),
        incidents: system.latest_incidents(INCIDENTS_MAX),
        incidents_kept: system.incidents_len(),
        payments: payments(system),
        chains: chains::chains(system, works.as_ref()),
        webhooks: undelivered,
        journal: journal(system),
    }
}

/// Payments by status and chain. Before the count is complete, the tally only covers changes since the start.
pub fn payments(system: &System) -> Option<Vec<Tallied>> {
    system.tally_is_counted().then(|| system.tally())
}

/// State of the journal.
pub fn journal(system: &System) -> JournalLine {
    JournalLine { writing: system.is_writing(), stats: system.journal().stats() }
}
