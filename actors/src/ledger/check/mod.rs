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

mod findings;
mod look;
mod metrics;
mod sums;
#[cfg(test)]
mod tests;

use std::time::Duration;

use payferry_entities::Database;
use payferry_runtime::clock::Clock;
use ractor::ActorProcessingErr;
use sea_orm::DbErr;

pub(crate) use findings::Findings;
pub use findings::{IMBALANCES_MAX, Imbalance, ImbalanceKind, LedgerView};
pub(crate) use metrics::describe;

use look::Look;
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};

/// Actor name of the ledger check.
pub(crate) const NAME: &str = "ledger";
/// Pause between two steps while there are unread postings. After a start, all postings are unread.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of one step, so that a silent database server does not block the check forever.
const LOOK_PATIENCE: Duration = Duration::from_mins(1);

/// The actor of the ledger check.
pub(crate) struct LedgerAuditor {
    database: Database,
    clock: Clock,
    findings: Findings,
    interval: Duration,
}

/// Message: run the next step.
pub(crate) struct LookNow;

impl LedgerAuditor {
    pub(crate) fn new(database: Database, clock: Clock, findings: Findings, interval: Duration) -> Self {
        Self { database, clock, findings, interval }
    }
}

impl Behaviour for LedgerAuditor {
    const KIND: ActorKind = ActorKind::Auditor;
    type Msg = LookNow;
    type State = Look;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<LookNow>, (): ()) -> Result<Look, ActorProcessingErr> {
        myself.cast(LookNow)?;
        // Sums from before a failure are not trusted, so everything is read again.
        Ok(Look::default())
    }

    async fn handle(&self, myself: &Mailbox<LookNow>, _: LookNow, look: &mut Look) -> Result<(), ActorProcessingErr> {
        let Self { database, clock, findings, .. } = self;
        // Boxed, because the future is large and only this actor has it.
        let looking = Box::pin(look.once_more(database, findings, clock.real_now()));
        let looked = tokio::time::timeout(LOOK_PATIENCE, looking).await;
        let wait = match looked.unwrap_or_else(|_| Err(DbErr::Custom("the step exceeded its time limit".to_owned()))) {
            Ok(true) => self.interval,
            Ok(false) => CATCH_UP_PAUSE.min(self.interval),
            Err(error) => {
                tracing::warn!(%error, "ledger check failed: {error}");
                self.interval
            }
        };
        myself.send_after(wait, || LookNow);
        Ok(())
    }
}
