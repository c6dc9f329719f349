//! Everything at a glance.

pub(crate) mod page;
pub(crate) mod payments;

use payferry_actors::System;
use payferry_actors::journal::JournalStats;
use payferry_actors::observe::{GivenUp, Incident, KindView, Tallied, TreeView};
use serde::Serialize;

use crate::chains::{self, ChainLine};
use crate::health::{self, Readiness};
use crate::query::{if_by, soon};
use crate::webhooks::{self, Webhooks};

/// Lines of the log, the newest.
pub const INCIDENTS_MAX: usize = 25;
/// Quarantined ones, the longest given up.
pub const QUARANTINED_MAX: usize = 10;

/// Everything at a glance.
#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    /// Whether payments can be taken, and what is in the way.
    pub readiness: Readiness,
    /// The permanent actors; payments are counted in their shards, payouts and withdrawals at their desk.
    pub tree: TreeView,
    /// The figures of every kind of actor.
    pub kinds: Vec<KindView>,
    /// Payments given up until somebody looks at them.
    pub payments_quarantined: usize,
    /// Payouts and withdrawals given up in the same way.
    pub sendings_quarantined: usize,
    /// The first [`QUARANTINED_MAX`] of all these.
    pub quarantined: Vec<GivenUp>,
    /// The supervision log, newest first, at most [`INCIDENTS_MAX`] entries.
    pub incidents: Vec<Incident>,
    /// How many are kept.
    pub incidents_kept: usize,
    /// Payments by status and chain; nothing until they were counted after the start.
    pub payments: Option<Vec<Tallied>>,
    /// The chains and their settlers.
    pub chains: Vec<ChainLine>,
    /// What was not delivered; nothing if the database does not answer in time.
    pub webhooks: Option<Webhooks>,
    /// The group-commit writer.
    pub journal: JournalLine,
}

/// The group-commit writer.
#[derive(Debug, Clone, Serialize)]
pub struct JournalLine {
    /// Whether the database takes what is written, as far as is known.
    pub writing: bool,
    /// What it did since the service started.
    #[serde(flatten)]
    pub stats: JournalStats,
}

/// Everything at a glance, as far as it is known: what only the database knows is missing while it is away.
pub async fn overview(system: &System) -> Overview {
    let readiness = health::readiness(system).await;
    let (mut works, mut undelivered) = (None, None);
    if readiness.database.reads {
        let deadline = soon();
        (works, undelivered) = tokio::join!(
            if_by(deadline, "what settlers have to do", chains::works(system)),
            if_by(deadline, "what was not delivered", webhooks::webhooks(system)),
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

/// Payments by status and chain. Before they were counted, what is tallied is only what happened since the start.
pub fn payments(system: &System) -> Option<Vec<Tallied>> {
    system.tally_is_counted().then(|| system.tally())
}

/// The group-commit writer.
pub fn journal(system: &System) -> JournalLine {
    JournalLine { writing: system.is_writing(), stats: system.journal().stats() }
}
