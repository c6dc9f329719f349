//! Views of the tree: counts, pages of lists, and the actor of one payment.
//!
//! Their cost does not grow with the number of live or failed actors, nor with the number of viewers: repeated requests
//! to a hanging actor leave at most one message in its mailbox.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_domain::{PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, Failure, Figures, Incident, KindView, Mailbox, NodeState};
use ractor::RpcReplyPort;
use serde::Serialize;

use super::System;
use crate::observe::{ActorSubject, PaymentLine, Quarantine, QuarantinedSubject, Tallied, TreeView};
use crate::payment::{Message, PaymentMemory};

/// Maximum time for a payment to reply.
pub const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of checks for an empty mailbox.
const QUIET_POLL: Duration = Duration::from_millis(10);

/// Counts of the tree.
#[derive(Debug, Clone, Serialize)]
pub struct SystemView {
    /// True if every shard is running and has read its live payments.
    pub ready: bool,
    /// Number of live payment actors.
    pub payments_live: usize,
    /// Number of payment actors started so far.
    pub payments_spawned: u64,
    /// Number of live actors of payouts and withdrawals.
    pub sendings_live: usize,
    /// Restarts by kind of actor.
    pub restarts: BTreeMap<ActorKind, u64>,
    /// Number of quarantined payments.
    pub payments_quarantined: usize,
    /// Number of quarantined payouts and withdrawals.
    pub sendings_quarantined: usize,
}

/// View of a payment's actor.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentView {
    /// Id of the payment.
    pub payment_id: PaymentId,
    /// State of the actor.
    pub state: NodeState,
    /// Wall-clock time of the last start; `None` while it is not running.
    pub since: Option<Timestamp>,
    /// Measurements since then.
    #[serde(flatten)]
    pub figures: Figures,
    /// Restarts, as far as they are recorded.
    pub restarts: u64,
    /// Last failure, as far as it is recorded.
    pub last_failure: Option<Failure>,
    /// Reason of the quarantine, if the payment is quarantined.
    pub quarantined: Option<Quarantine>,
    /// State of the actor; `None` if it is not running or does not reply in time.
    pub memory: Option<PaymentMemory>,
}

impl System {
    /// Counts of the tree.
    pub fn observe(&self) -> SystemView {
        let (router, registry) = (&self.payments().router, self.registry());
        let (payments_quarantined, sendings_quarantined) = registry.quarantined_lens();
        SystemView {
            ready: self.is_ready(),
            payments_live: router.live_len(),
            payments_spawned: router.spawned(),
            sendings_live: self.outbound().live.live_len(),
            restarts: registry.restarts(),
            payments_quarantined,
            sendings_quarantined,
        }
    }

    /// View of a payment's actor; `None` if it has none and is not quarantined.
    pub async fn observe_payment(&self, payment_id: PaymentId) -> Option<PaymentView> {
        let (router, registry) = (&self.payments().router, self.registry());
        let (actor, quarantined) = (router.live(payment_id), registry.quarantine_of(payment_id));
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = registry.failures_of(payment_id);
        let state = if quarantined.is_some() { NodeState::Quarantined } else { NodeState::Running };
        // Read before the request, so that the request is not counted as waiting.
        let (since, figures) = match &actor {
            Some(actor) => (Some(actor.actor_metrics().since().into()), actor.actor_metrics().figures()),
            None => (None, Figures::default()),
        };
        let memory = match &actor {
            Some(actor) => ask(actor, Message::Observe).await,
            None => None,
        };
        Some(PaymentView { payment_id, state, since, figures, restarts, last_failure, quarantined, memory })
    }

    /// The tree: every permanent actor by name; payments, payouts and withdrawals only as counts.
    pub fn tree(&self) -> TreeView {
        let (router, registry) = (&self.payments().router, self.registry());
        registry.tree(|shard| router.live_len_in(shard), self.outbound().live.live_len())
    }

    /// Measurements of every kind of actor.
    pub fn kinds(&self) -> Vec<KindView> {
        self.registry().kinds()
    }

    /// Page of the live payments of a shard after `after`, by id. The cost depends only on the page.
    pub fn payments_of_shard(&self, index: usize, after: Option<PaymentId>, limit: usize) -> Vec<PaymentLine> {
        self.payments().router.lines(index, after, limit)
    }

    /// Payments by status and chain, including zeros: counted at the start and updated by each commit.
    /// [`System::tally_is_counted`] returns true once the count has finished.
    pub fn tally(&self) -> Vec<Tallied> {
        self.registry().tally().read()
    }

    /// True if all payments have been counted since the start; until then, the counts only contain later changes.
    pub fn tally_is_counted(&self) -> bool {
        self.registry().tally().is_counted()
    }

    /// True if a payment, payout or withdrawal is quarantined.
    pub fn is_quarantined(&self, of: impl Into<ActorSubject>) -> bool {
        self.registry().is_quarantined(of)
    }

    /// Page of the quarantined subjects, oldest quarantine first, after `after`. The cost depends only on the page.
    pub fn given_up(&self, after: Option<(Timestamp, ActorSubject)>, limit: usize) -> Vec<QuarantinedSubject> {
        self.registry().given_up(after, limit)
    }

    /// Stored incidents with a number above `after` (all of them for `None`), oldest first.
    pub fn incidents(&self, after: Option<u64>) -> Vec<Incident> {
        self.registry().log().since(after.unwrap_or_default())
    }

    /// Up to `limit` stored incidents, newest first.
    pub fn latest_incidents(&self, limit: usize) -> Vec<Incident> {
        self.registry().log().latest(limit)
    }

    /// Up to `limit` stored incidents of one actor, newest first.
    pub fn latest_incidents_of(&self, kind: ActorKind, name: &str, limit: usize) -> Vec<Incident> {
        self.registry().log().latest_of(kind, name, limit)
    }

    /// Number of stored incidents.
    pub fn incidents_len(&self) -> usize {
        self.registry().log().len()
    }

    /// Receiver of the newest incident's number; 0 before the first.
    pub fn watch_incidents(&self) -> tokio::sync::watch::Receiver<u64> {
        self.registry().log().watch()
    }
}

/// Requests the state of an actor; `None` if it is too busy or gone. The request is only sent when the mailbox is
/// empty: otherwise every view of a hanging actor would leave a message in its mailbox.
pub(super) async fn ask<M: Send + 'static, T: Send + 'static>(
    actor: &Mailbox<M>,
    question: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Option<T> {
    let asking = async {
        while actor.actor_metrics().depth() > 0 {
            tokio::time::sleep(QUIET_POLL).await;
        }
        let (reply, replied) = ractor::concurrency::oneshot();
        let _ = actor.cast(question(reply.into()));
        replied.await.ok()
    };
    tokio::time::timeout(OBSERVE_TIMEOUT, asking).await.ok().flatten()
}
