//! Views of the tree: counts, pages of lists, and the actor of one payment, payout or withdrawal.
//!
//! Their cost does not grow with the number of live or failed actors, nor with the number of viewers: repeated requests
//! to a hanging actor leave at most one message in its mailbox.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment;
use payferry_domain::{PaymentId, Timestamp};
use payferry_runtime::observe::{ActorFailure, ActorFigures, ActorKind, ActorMessages, Mailbox, NodeState};
use ractor::RpcReplyPort;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::System;
use crate::admission::AdmissionView;
use crate::aggregate::{ActorMemory, Aggregate, Aggregates, Message};
use crate::observe::{ActorSubject, OutboundLine, PaymentLine, Quarantine, Tallied, TreeMetrics, TreeView};

/// Maximum time for a payment to reply.
pub const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of checks for an empty mailbox.
const QUIET_POLL: Duration = Duration::from_millis(10);

/// Counts of the tree.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SystemView {
    /// True if every shard is running and has read its live payments.
    pub ready: bool,
    /// Number of live payments on this node.
    pub payments_live: usize,
    /// Those that only wait, and therefore have no actor.
    pub payments_waiting: usize,
    /// Number of payment actors started so far.
    pub payments_spawned: u64,
    /// Number of live actors of payouts and withdrawals.
    pub sendings_live: usize,
    /// Restarts by kind of actor.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub restarts: BTreeMap<ActorKind, u64>,
    /// Number of quarantined payments.
    pub payments_quarantined: usize,
    /// Number of quarantined payouts and withdrawals.
    pub sendings_quarantined: usize,
    /// Number of quarantined customers.
    pub customers_quarantined: usize,
}

/// View of the actor of a payment, payout or withdrawal.
#[derive(Debug, Clone, Serialize)]
pub struct ActorView<E> {
    /// Id, in the field `payment_id` or `sending_id`.
    #[serde(flatten, serialize_with = "in_field_of_its_kind")]
    pub id: ActorSubject,
    /// State of the actor.
    pub state: NodeState,
    /// Wall-clock time of the last start; `None` while it is not running.
    pub since: Option<Timestamp>,
    /// Measurements since then.
    #[serde(flatten)]
    pub figures: ActorFigures,
    /// Messages since then, by name, and the last ones; `None` if the actor is not running, or so many others are that its
    /// messages are not kept.
    pub handled: Option<ActorMessages>,
    /// Restarts, as far as they are recorded.
    pub restarts: u64,
    /// Last failure, as far as it is recorded.
    pub last_failure: Option<ActorFailure>,
    /// Reason of the quarantine, if it is quarantined.
    pub quarantined: Option<Quarantine>,
    /// State of the actor; `None` if it is not running or does not reply in time.
    pub memory: Option<ActorMemory<E>>,
}

/// View of a payment's actor.
pub type PaymentView = ActorView<payment::Effect>;
/// View of the actor of a payout or withdrawal.
pub type OutboundView = ActorView<outbound::Effect>;

fn in_field_of_its_kind<S: Serializer>(id: &ActorSubject, serializer: S) -> Result<S::Ok, S::Error> {
    let field = match id {
        ActorSubject::Payment(_) => "payment_id",
        ActorSubject::OutboundTransfer(_) => "sending_id",
    };
    serializer.collect_map([(field, id)])
}

/// The metrics of the tree: its actors, the supervision log, and the quarantined subjects.
impl Deref for System {
    type Target = TreeMetrics;

    fn deref(&self) -> &TreeMetrics {
        self.registry()
    }
}

impl System {
    /// State of the admission of new payments on this node.
    pub fn admission(&self) -> AdmissionView {
        self.inner.parts.admission.view()
    }

    /// Counts of the tree.
    pub fn observe(&self) -> SystemView {
        let (payments, registry) = (self.payments(), self.registry());
        let quarantined = registry.quarantine_counts();
        SystemView {
            ready: self.is_ready(),
            payments_live: payments.live_len(),
            payments_waiting: payments.waiting_len(),
            payments_spawned: payments.spawned(),
            sendings_live: self.outbound().live_len(),
            restarts: registry.restarts(),
            payments_quarantined: quarantined.payments,
            sendings_quarantined: quarantined.outbound,
            customers_quarantined: quarantined.customers,
        }
    }

    /// View of a payment's actor; `None` if it has none and is not quarantined.
    pub async fn observe_payment(&self, payment_id: PaymentId) -> Option<PaymentView> {
        self.observe_actor(self.payments(), payment_id).await
    }

    /// View of the actor of a payout or withdrawal; `None` if it has none and is not quarantined.
    pub async fn observe_outbound(&self, id: OutboundId) -> Option<OutboundView> {
        self.observe_actor(self.outbound(), id).await
    }

    async fn observe_actor<A: Aggregate>(&self, aggregates: &Aggregates<A>, id: A::Id) -> Option<ActorView<A::Effect>> {
        let registry = self.registry();
        let quarantined = registry.quarantine_of(id);
        if aggregates.waiting(id).is_some() && quarantined.is_none() {
            wake(aggregates, id).await;
        }
        let actor = aggregates.live(id);
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = registry.failures_of(id);
        let state = if quarantined.is_some() { NodeState::Quarantined } else { NodeState::Running };
        // Read before the request, so that the request is not counted as waiting.
        let (since, figures) = match &actor {
            Some(actor) => (Some(actor.actor_metrics().since().into()), actor.actor_metrics().figures()),
            None => (None, ActorFigures::default()),
        };
        let handled = actor.as_ref().and_then(|actor| actor.actor_metrics().messages());
        let memory = match &actor {
            Some(actor) => ask(actor, Message::Observe).await,
            None => None,
        };
        Some(ActorView { id: id.into(), state, since, figures, handled, restarts, last_failure, quarantined, memory })
    }

    /// The tree: every permanent actor by name; payments, payouts and withdrawals only as counts.
    pub fn tree(&self) -> TreeView {
        self.registry().tree(|shard| self.payments().live_len_in(shard), self.outbound().live_len())
    }

    /// Page of the live payments of a shard after `after`, by id. The cost depends only on the page.
    pub fn payments_of_shard(&self, index: usize, after: Option<PaymentId>, limit: usize) -> Vec<PaymentLine> {
        self.payments().lines(index, after, limit)
    }

    /// Page of the live payouts and withdrawals after `after`, by id. The cost depends only on the page.
    pub fn outbound_live(&self, after: Option<OutboundId>, limit: usize) -> Vec<OutboundLine> {
        self.outbound().lines(0, after, limit)
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
}

/// Starts the actor of an aggregate that only waits.
async fn wake<A: Aggregate>(aggregates: &Aggregates<A>, id: A::Id) {
    aggregates.send(id, Message::Resume);
    let started = async {
        while aggregates.live(id).is_none() {
            tokio::time::sleep(QUIET_POLL).await;
        }
    };
    // An aggregate that cannot be started in time is shown without an actor.
    let _ = tokio::time::timeout(OBSERVE_TIMEOUT, started).await;
}

/// Requests the state of an actor; `None` if it is too busy or gone. The request is only sent when the mailbox is
/// empty: otherwise every view of a hanging actor would leave a message in its mailbox.
async fn ask<M: Send + 'static, T: Send + 'static>(
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
