//! The auditor of the ledger: looks again and again whether the ledger adds up, and names what does not.
//!
//! What can really go wrong is looked at: running balances that are not the sums of their postings, accounts below zero that
//! cannot be, and payments, payouts and withdrawals whose state says something else than their postings. It reads what was
//! posted since it last looked, and walks over everything else a few rows at a time, in snapshots of their own, so that it holds
//! up nobody. Debits equal credits in every row already. Deliberately absent: mending anything, and the chains (`reconcile`).

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

/// The auditor's name among the actors.
pub(crate) const NAME: &str = "ledger";
/// Between two steps while there are postings that it has never read: after a start, all of them.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);
/// How long one look may take: a server that has fallen silent does not keep it for ever.
const LOOK_PATIENCE: Duration = Duration::from_mins(1);

/// The actor.
pub(crate) struct LedgerAuditor {
    database: Database,
    clock: Clock,
    findings: Findings,
    interval: Duration,
}

/// Look once more.
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
        // What was summed up before a failure is not trusted: it reads everything anew.
        Ok(Look::default())
    }

    async fn handle(&self, myself: &Mailbox<LookNow>, _: LookNow, look: &mut Look) -> Result<(), ActorProcessingErr> {
        let Self { database, clock, findings, .. } = self;
        // Boxed: the future is large, and this actor's alone.
        let looking = Box::pin(look.once_more(database, findings, clock.real_now()));
        let looked = tokio::time::timeout(LOOK_PATIENCE, looking).await;
        let wait = match looked.unwrap_or_else(|_| Err(DbErr::Custom("it took too long".to_owned()))) {
            Ok(true) => self.interval,
            Ok(false) => CATCH_UP_PAUSE.min(self.interval),
            Err(error) => {
                tracing::warn!(%error, "the ledger could not be looked at: {error}");
                self.interval
            }
        };
        myself.send_after(wait, || LookNow);
        Ok(())
    }
}
