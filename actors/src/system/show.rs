//! The tree as it shows itself: what is counted, what is listed a page at a time, and the actor of one payment.
//!
//! Nothing here grows with what is live, with what failed, or with who looks: those that keep looking at one that hangs
//! leave no more than a question in its mailbox.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_domain::{PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, Failure, Figures, Incident, KindView, Mailbox, NodeState};
use ractor::RpcReplyPort;
use serde::Serialize;

use super::System;
use crate::observe::{Ferried, GivenUp, PaymentLine, Quarantine, Tallied, TreeView};
use crate::payment::{Message, PaymentMemory};

/// How long a payment may take to show itself.
pub const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is looked whether a mailbox is empty.
const QUIET_POLL: Duration = Duration::from_millis(10);

/// What the tree counts.
#[derive(Debug, Clone, Serialize)]
pub struct SystemView {
    /// Whether every shard runs and has read its live payments.
    pub ready: bool,
    /// Live payment actors.
    pub payments_live: usize,
    /// Payment actors started so far.
    pub payments_spawned: u64,
    /// Live actors of payouts and withdrawals.
    pub sendings_live: usize,
    /// Restarts so far.
    pub restarts: BTreeMap<ActorKind, u64>,
    /// Payments given up until an operator looks at them.
    pub payments_quarantined: usize,
    /// Payouts and withdrawals given up in the same way.
    pub sendings_quarantined: usize,
}

/// A payment's actor as it shows itself.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentView {
    /// Which.
    pub payment_id: PaymentId,
    /// How the actor is.
    pub state: NodeState,
    /// Since when it runs, by the wall clock; `None` while it does not.
    pub since: Option<Timestamp>,
    /// What is measured of it since then.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts, as far as they are remembered.
    pub restarts: u64,
    /// The last failure, as far as it is remembered.
    pub last_failure: Option<Failure>,
    /// Why it is not run any more, if it is not.
    pub quarantined: Option<Quarantine>,
    /// What the actor remembers; `None` if it is not there or too busy to say.
    pub memory: Option<PaymentMemory>,
}

impl System {
    /// What the tree counts.
    pub fn observe(&self) -> SystemView {
        let (router, books) = (&self.payments().router, self.books());
        let (payments_quarantined, sendings_quarantined) = books.quarantined_lens();
        SystemView {
            ready: self.is_ready(),
            payments_live: router.live_len(),
            payments_spawned: router.spawned(),
            sendings_live: self.sendings().live.live_len(),
            restarts: books.restarts(),
            payments_quarantined,
            sendings_quarantined,
        }
    }

    /// Shows a payment's actor; `None` if it has none and is not quarantined.
    pub async fn observe_payment(&self, payment_id: PaymentId) -> Option<PaymentView> {
        let (router, books) = (&self.payments().router, self.books());
        let (actor, quarantined) = (router.live(payment_id), books.quarantine_of(payment_id));
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = books.failures_of(payment_id);
        let state = if quarantined.is_some() { NodeState::Quarantined } else { NodeState::Running };
        // Before it is asked, so that the question is not among what waits.
        let (since, figures) = match &actor {
            Some(actor) => (Some(actor.books().since().into()), actor.books().figures()),
            None => (None, Figures::default()),
        };
        let memory = match &actor {
            Some(actor) => ask(actor, Message::Observe).await,
            None => None,
        };
        Some(PaymentView { payment_id, state, since, figures, restarts, last_failure, quarantined, memory })
    }

    /// The tree: every permanent actor by name; payments are counted in their shards, payouts and withdrawals at their desk.
    pub fn tree(&self) -> TreeView {
        let (router, books) = (&self.payments().router, self.books());
        books.tree(|shard| router.live_len_in(shard), self.sendings().live.live_len())
    }

    /// The figures of every kind of actor.
    pub fn kinds(&self) -> Vec<KindView> {
        self.books().kinds()
    }

    /// A page of the live payments of a shard after `after`, in the order of their ids. Cheap however many there are.
    pub fn payments_of_shard(&self, index: usize, after: Option<PaymentId>, limit: usize) -> Vec<PaymentLine> {
        self.payments().router.lines(index, after, limit)
    }

    /// Payments by status and chain, also where there are none: counted at the start and kept by each commit. Whether
    /// they have been counted yet is what [`System::tally_is_counted`] says.
    pub fn tally(&self) -> Vec<Tallied> {
        self.books().tally().read()
    }

    /// Whether all payments were counted since the start; until then the tally holds only what happened since.
    pub fn tally_is_counted(&self) -> bool {
        self.books().tally().is_counted()
    }

    /// Whether a payment, payout or withdrawal is given up.
    pub fn is_quarantined(&self, of: impl Into<Ferried>) -> bool {
        self.books().is_quarantined(of)
    }

    /// A page of what is given up, the longest first, after the one that was given up then. Cheap however many there are.
    pub fn given_up(&self, after: Option<(Timestamp, Ferried)>, limit: usize) -> Vec<GivenUp> {
        self.books().given_up(after, limit)
    }

    /// Incidents with a number above `after` that are still kept (all of them for `None`), oldest first.
    pub fn incidents(&self, after: Option<u64>) -> Vec<Incident> {
        self.books().incidents(after.unwrap_or_default())
    }

    /// The newest incidents, at most so many, the newest first.
    pub fn latest_incidents(&self, limit: usize) -> Vec<Incident> {
        self.books().latest_incidents(limit)
    }

    /// The same of one actor.
    pub fn latest_incidents_of(&self, kind: ActorKind, name: &str, limit: usize) -> Vec<Incident> {
        self.books().latest_incidents_of(kind, name, limit)
    }

    /// How many incidents are still kept.
    pub fn incidents_len(&self) -> usize {
        self.books().incidents_len()
    }

    /// Changes whenever there is an incident; holds the number of the newest one, 0 before the first.
    pub fn watch_incidents(&self) -> tokio::sync::watch::Receiver<u64> {
        self.books().watch_incidents()
    }
}

/// Asks an actor to show itself; `None` if it is too busy, or there no more. It is asked only once nothing waits for it:
/// one that hangs would have a question left behind in its mailbox by everybody who looks, and by each look.
pub(super) async fn ask<M: Send + 'static, T: Send + 'static>(
    actor: &Mailbox<M>,
    question: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Option<T> {
    let asking = async {
        while actor.books().depth() > 0 {
            tokio::time::sleep(QUIET_POLL).await;
        }
        let (reply, replied) = ractor::concurrency::oneshot();
        let _ = actor.cast(question(reply.into()));
        replied.await.ok()
    };
    tokio::time::timeout(OBSERVE_TIMEOUT, asking).await.ok().flatten()
}
