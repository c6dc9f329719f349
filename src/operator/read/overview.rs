//! Everything at a glance.

use std::collections::BTreeMap;

use payferry_actors::System;
use payferry_actors::journal::JournalStats;
use payferry_actors::observe::{Incident, KindView, Quarantine, Tallied, TreeView};
use payferry_domain::PaymentId;
use payferry_domain::sending::SendingId;
use sea_orm::DbErr;
use serde::Serialize;

use super::chains::{self, ChainLine};
use super::webhooks::{self, Webhooks};
use crate::operator::health::{self, Readiness};

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
    pub quarantined: BTreeMap<PaymentId, Quarantine>,
    /// Payouts and withdrawals given up in the same way.
    pub sendings_quarantined: BTreeMap<SendingId, Quarantine>,
    /// The supervision log, newest first.
    pub incidents: Vec<Incident>,
    /// Payments by status and chain; nothing until they were counted after the start.
    pub payments: Option<Vec<Tallied>>,
    /// The chains and their settlers.
    pub chains: Vec<ChainLine>,
    /// What was not delivered.
    pub webhooks: Webhooks,
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

/// Everything at a glance.
pub async fn overview(system: &System) -> Result<Overview, DbErr> {
    let mut incidents = system.incidents(None);
    let view = system.observe();
    incidents.reverse();
    Ok(Overview {
        readiness: health::readiness(system).await,
        tree: system.tree(),
        kinds: system.kinds(),
        quarantined: view.quarantined,
        sendings_quarantined: view.sendings_quarantined,
        incidents,
        payments: payments(system),
        chains: chains::chains(system).await?,
        webhooks: webhooks::webhooks(system).await?,
        journal: journal(system),
    })
}

/// Payments by status and chain. Before they were counted, what is tallied is only what happened since the start.
pub fn payments(system: &System) -> Option<Vec<Tallied>> {
    system.tally_is_counted().then(|| system.tally())
}

/// The group-commit writer.
pub fn journal(system: &System) -> JournalLine {
    JournalLine { writing: system.is_writing(), stats: system.journal().stats() }
}
