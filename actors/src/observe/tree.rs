//! The books of a whole tree: those of its actors, what is quarantined, and the tally of payments.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use payferry_domain::Timestamp;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorRegistry, Cause, Failure};

use super::quarantine::{Quarantine, Quarantined, QuarantinedSubject};
use super::tally::Tally;
use super::view::{self, TreeView};
use super::{ActorSubject, metrics};

/// The books of one tree. Clones are the same books.
#[derive(Clone)]
pub struct TreeBooks {
    actors: ActorRegistry,
    quarantined: Arc<Mutex<Quarantined>>,
    tally: Arc<Tally>,
}

impl Default for TreeBooks {
    fn default() -> Self {
        Self::new(Clock::default())
    }
}

/// The books of the actors.
impl Deref for TreeBooks {
    type Target = ActorRegistry;

    fn deref(&self) -> &ActorRegistry {
        &self.actors
    }
}

impl fmt::Debug for TreeBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.actors.fmt(f)
    }
}

impl TreeBooks {
    /// Creates the metrics of a tree, all empty.
    pub fn new(clock: Clock) -> Self {
        metrics::describe();
        Self { actors: ActorRegistry::new(clock), quarantined: Arc::default(), tally: Arc::default() }
    }

    /// Payments by status.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Records a failure and that the payment, payout or withdrawal is given up.
    pub(crate) fn give_up(&self, of: impl Into<ActorSubject>, cause: Cause, reason: &str) {
        let of = of.into();
        let failure = self.actors.quarantined(of.kind(), &of.to_string(), cause, reason);
        metrics::quarantined(of.kind(), cause);
        let quarantine = Quarantine { since: failure.at.into(), reason: failure.reason };
        self.quarantined.lock().insert(of, quarantine);
    }

    /// Whether it is given up.
    pub fn is_quarantined(&self, of: impl Into<ActorSubject>) -> bool {
        self.quarantined.lock().contains(of.into())
    }

    /// Lets it run again. Answers whether it was quarantined.
    pub(crate) fn release(&self, of: ActorSubject) -> bool {
        self.quarantined.lock().remove(of)
    }

    /// Those that are given up, the longest first: at most so many, behind `after` if that is given.
    pub fn given_up(&self, after: Option<(Timestamp, ActorSubject)>, limit: usize) -> Vec<QuarantinedSubject> {
        self.quarantined.lock().page(after, limit)
    }

    /// How many are given up: payments, and payouts and withdrawals.
    pub fn quarantined_lens(&self) -> (usize, usize) {
        let quarantined = self.quarantined.lock();
        (quarantined.payments_len(), quarantined.outbound_len())
    }

    pub(crate) fn quarantine_of(&self, of: impl Into<ActorSubject>) -> Option<Quarantine> {
        self.quarantined.lock().get(of.into()).cloned()
    }

    /// Its restarts and its last failure, as far as they are remembered.
    pub(crate) fn failures_of(&self, of: impl Into<ActorSubject>) -> (u64, Option<Failure>) {
        let of = of.into();
        self.actors.failures_of(of.kind(), &of.to_string())
    }

    /// Shows what is not counted as it happens.
    pub(crate) fn refresh_metrics(&self) {
        self.actors.refresh_metrics();
        let (payments, sendings) = self.quarantined_lens();
        metrics::refresh_quarantined(payments, sendings);
        if self.tally.is_counted() {
            metrics::refresh_payments(&self.tally.read());
        }
    }

    /// The tree, with the payments that `payments_live` counts in each shard, and so many payouts and withdrawals.
    pub(crate) fn tree(&self, payments_live: impl Fn(usize) -> usize, sendings_live: usize) -> TreeView {
        view::tree(&self.actors, payments_live, sendings_live)
    }
}
