//! The ledger check: repeatedly verifies that the ledger is consistent, and reports imbalances.
//!
//! It checks the errors that can really occur:
//!
//! - running balances that differ from the sums of their postings;
//! - negative accounts;
//! - payments, payouts, and withdrawals whose state does not match their postings.
//!
//! It reads new postings, and walks over all other rows a few at a time, in separate snapshots, so that it delays no
//! other work. Debits equal credits in every row by construction. Not here: repairs, and the chains (`reconcile`).

mod check_progress;
mod findings;
mod metrics;
mod sums;
#[cfg(test)]
mod tests;

use std::time::Duration;

use payferry_entities::Database;
use payferry_runtime::clock::Clock;
use sea_orm::DbErr;

pub(crate) use findings::Findings;
pub use findings::{IMBALANCES_MAX, Imbalance, ImbalanceKind, LedgerView, Where};
pub(crate) use metrics::describe;

use check_progress::CheckProgress;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};

/// Actor name of the ledger check.
pub(crate) const NAME: &str = "ledger";
/// Pause between two steps while there are unread postings. After a start, all postings are unread.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of one step, so that a silent database server does not block the check forever.
const LOOK_PATIENCE: Duration = Duration::from_mins(1);

/// The actor of the ledger check.
#[derive(Clone)]
pub(crate) struct LedgerAuditor {
    pub(crate) database: Database,
    pub(crate) clock: Clock,
    pub(crate) findings: Findings,
    pub(crate) interval: Duration,
}

/// Message: run the next step.
pub(crate) struct CheckStep;

impl Behaviour for LedgerAuditor {
    const KIND: ActorKind = ActorKind::Auditor;
    type Msg = CheckStep;
    type State = CheckProgress;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<CheckStep>, (): ()) -> ActorResult<CheckProgress> {
        myself.cast(CheckStep)?;
        // Sums from before a failure are not trusted, so everything is read again.
        Ok(CheckProgress::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<CheckStep>,
        _: CheckStep,
        check_progress: &mut CheckProgress,
    ) -> ActorResult {
        let Self { database, clock, findings, .. } = self;
        // Boxed, because the future is large and only this actor has it.
        let looking = Box::pin(check_progress.once_more(database, findings, clock.real_now()));
        let record_progress = tokio::time::timeout(LOOK_PATIENCE, looking).await;
        let wait = match record_progress
            .unwrap_or_else(|_| Err(DbErr::Custom("the step exceeded its time limit".to_owned())))
        {
            Ok(true) => self.interval,
            Ok(false) => CATCH_UP_PAUSE.min(self.interval),
            Err(error) => {
                tracing::warn!(%error, "ledger check failed: {error}");
                self.interval
            }
        };
        myself.send_after(wait, || CheckStep);
        Ok(())
    }
}
