//! Interface between the journal and an observer of its commits.
//!
//! The journal does not know the purpose of the observer. It reports each committed change of a payment's status and
//! each commit with an unknown outcome, and lets the observer read the database while no commit is in progress.

use std::sync::Arc;

use async_trait::async_trait;
use payferry_domain::Chain;
use payferry_domain::payment::{HistoryEntry, Payment, Status};
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbBackend, DbErr};

/// Status of a payment, with its chain and the need for an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaymentState {
    /// Chain of the payment. It changes if the payer chooses another.
    pub chain: Chain,
    /// Status of the payment.
    pub status: Status,
    /// True if the payment needs an actor.
    pub live: bool,
}

impl PaymentState {
    /// Returns the state of `payment`.
    pub fn of(payment: &Payment) -> Self {
        Self { chain: payment.terms.chain, status: payment.status, live: payment.is_live() }
    }
}

/// A committed change of one payment.
#[derive(Debug)]
pub struct PaymentMove {
    /// Before the commit; `None` if the commit created the payment.
    pub before: Option<PaymentState>,
    /// After the commit.
    pub after: PaymentState,
    /// Entries of the history, starting with the last one before the commit.
    pub steps: Vec<HistoryEntry>,
}

impl PaymentMove {
    pub(crate) fn made(payment: &Payment) -> Self {
        Self { before: None, after: PaymentState::of(payment), steps: Vec::new() }
    }

    pub(crate) fn between(before: &Payment, after: &Payment) -> Self {
        let known = before.history.len();
        let steps =
            if after.history.len() > known { after.history[known.saturating_sub(1)..].to_vec() } else { Vec::new() };
        Self { before: Some(PaymentState::of(before)), after: PaymentState::of(after), steps }
    }
}

/// Follows the commits of a journal. Its methods run in the journal's task: commits wait for them. By default they have
/// no effect.
#[async_trait]
pub trait CommitObserver: Send + Sync + 'static {
    /// A change of a payment was committed.
    fn committed(&self, _moved: &PaymentMove) {}

    /// A commit has an unknown outcome: the database may hold changes that were not reported.
    fn outcome_unknown(&self) {}

    /// Returns true if [`CommitObserver::between_commits`] must be called before the next group.
    fn wants_pause(&self) -> bool {
        false
    }

    /// Returns once [`CommitObserver::wants_pause`] returns true. The journal waits for this while it has nothing to
    /// commit.
    async fn pause_wanted(&self) {
        std::future::pending::<()>().await;
    }

    /// Called while no commit is in progress; the next group waits until it returns.
    async fn between_commits(self: Arc<Self>, _quiet: Quiet<'_>) {}
}

/// Access to the database while the journal commits nothing.
#[derive(Debug, Clone, Copy)]
pub struct Quiet<'a> {
    pub(super) database: &'a Database,
}

impl Quiet<'_> {
    /// The database.
    pub fn database(&self) -> &Database {
        self.database
    }

    /// Returns once no earlier connection is still committing changes of payments. A lost connection may be.
    pub async fn settled(&self) -> Result<(), DbErr> {
        // SQLite has one writer at a time.
        if self.database.backend() == DbBackend::Postgres {
            let transaction = self.database.begin().await?;
            transaction.execute_unprepared("LOCK TABLE payments IN SHARE ROW EXCLUSIVE MODE").await?;
            transaction.rollback().await?;
        }
        Ok(())
    }
}

/// Observer without effect.
pub(super) struct NoObserver;

impl CommitObserver for NoObserver {}
