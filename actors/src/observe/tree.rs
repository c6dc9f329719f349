//! Metrics of a whole tree: those of its actors, the quarantined subjects, and the payments by status.

use std::sync::Arc;

use payferry_domain::invariants::Violated;
use payferry_domain::{CustomerId, Timestamp};
use payferry_entities::Database;
use payferry_journal::audit::NewAuditEntry;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorFailure, ActorRegistry, Cause};
use sea_orm::DbErr;

use super::quarantine::{Quarantinable, Quarantine, QuarantineCounts, Quarantined, QuarantinedSubject, Quarantines};
use super::tally::{Tallied, Tally};
use super::view::{self, TreeView};
use super::{ActorSubject, metrics};

/// Metrics of one tree. Clones share them.
#[derive(Clone, derive_more::Deref)]
pub struct TreeMetrics {
    /// Metrics of the actors.
    #[deref]
    actors: ActorRegistry,
    quarantines: Arc<Quarantines>,
    tally: Arc<Tally>,
}

impl TreeMetrics {
    /// Creates the metrics of a tree, all empty except for stored quarantines.
    pub(crate) async fn load(clock: Clock, database: Database, is_shared: bool) -> Result<Self, DbErr> {
        metrics::describe();
        let quarantines = Arc::new(Quarantines::new(database));
        quarantines.load().await?;
        Ok(Self { actors: ActorRegistry::new(clock), quarantines, tally: Arc::new(Tally::new(is_shared)) })
    }

    /// Reads the quarantines again, which other nodes may have changed.
    pub(crate) async fn reload_quarantines(&self) -> Result<(), DbErr> {
        self.quarantines.load().await
    }

    /// Payments by status.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Records a failure and quarantines the payment, payout or withdrawal.
    pub(crate) fn give_up(&self, of: impl Into<ActorSubject>, cause: Cause, reason: &str) {
        let of = of.into();
        let failure = self.actors.quarantined(of.kind(), &of.to_string(), cause, reason);
        metrics::quarantined(of.kind(), cause);
        let quarantine = Quarantine { since: failure.at.into(), reason: failure.reason };
        self.quarantines.insert(of.into(), quarantine);
    }

    /// Quarantines a customer whose change would have violated invariants. It has no actor and is not in the
    /// supervision log.
    pub(crate) fn quarantine_customer(&self, id: CustomerId, violated: &Violated) {
        let quarantine = Quarantine { since: self.actors.now().into(), reason: violated.to_string() };
        tracing::error!(customer.id = %id, reason = %quarantine.reason, "customer {id} is quarantined");
        metrics::customer_quarantined();
        self.quarantines.insert(id.into(), quarantine);
    }

    /// Returns true if it is quarantined.
    pub fn is_quarantined(&self, of: impl Into<Quarantinable>) -> bool {
        self.quarantines.read(|all| all.contains(of.into()))
    }

    /// Ends the quarantine, and writes audit entries of the operator with it. Returns true if it was quarantined.
    pub(crate) async fn release(
        &self,
        of: Quarantinable,
        audited: Vec<NewAuditEntry>,
        now: Timestamp,
    ) -> Result<bool, DbErr> {
        self.quarantines.release(of, audited, now).await
    }

    /// Page of the quarantined subjects after `after`, the longest quarantined first: at most `limit`.
    pub fn given_up(&self, after: Option<(Timestamp, Quarantinable)>, limit: usize) -> Vec<QuarantinedSubject> {
        self.quarantines.read(|all| all.page(after, limit))
    }

    /// Numbers of the quarantined subjects.
    pub fn quarantine_counts(&self) -> QuarantineCounts {
        self.quarantines.read(Quarantined::counts)
    }

    /// Reason of the quarantine, if it is quarantined.
    pub fn quarantine_of(&self, of: impl Into<Quarantinable>) -> Option<Quarantine> {
        self.quarantines.read(|all| all.get(of.into()).cloned())
    }

    /// Restarts and last failure, as far as they are recorded.
    pub(crate) fn failures_of(&self, of: impl Into<ActorSubject>) -> (u64, Option<ActorFailure>) {
        let of = of.into();
        self.actors.failures_of(of.kind(), &of.to_string())
    }

    /// Updates the gauges that are not updated by events. `of_all`: also those of rows that all nodes share.
    pub(crate) fn refresh_metrics(&self, of_all: bool) {
        self.actors.refresh_metrics();
        metrics::refresh_quarantined(self.quarantine_counts());
        if of_all && self.tally.is_counted() {
            metrics::refresh_payments(&self.tally.read());
        }
    }

    /// Sets the gauges of all payments to 0, because another node reports them from now on.
    pub(crate) fn forget_payments(&self) {
        let none = |tallied| Tallied { count: 0, live: 0, ..tallied };
        metrics::refresh_payments(&self.tally.read().into_iter().map(none).collect::<Vec<_>>());
    }

    /// View of the tree. `payments_live` returns the live payments of a shard.
    pub(crate) fn tree(&self, payments_live: impl Fn(usize) -> usize, outbound_live: usize) -> TreeView {
        view::tree(&self.actors, payments_live, outbound_live)
    }
}
