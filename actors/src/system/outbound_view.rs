//! Views of payouts and withdrawals and their actors.

use payferry_domain::Timestamp;
use payferry_domain::outbound::OutboundId;
use payferry_runtime::observe::{Failure, Figures, NodeState};
use serde::Serialize;

use super::System;
use super::show::ask;
use crate::observe::{OutboundLine, Quarantine};
use crate::outbound::{Message, OutboundActorView};

/// View of the actor of a payout or withdrawal.
#[derive(Debug, Clone, Serialize)]
pub struct OutboundView {
    /// Id of the payout or withdrawal.
    pub sending_id: OutboundId,
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
    /// Reason of the quarantine, if it is quarantined.
    pub quarantined: Option<Quarantine>,
    /// State of the actor; `None` if it is not running or does not reply in time.
    pub memory: Option<OutboundActorView>,
}

impl System {
    /// View of the actor of a payout or withdrawal; `None` if it has none and is not quarantined.
    pub async fn observe_outbound(&self, id: OutboundId) -> Option<OutboundView> {
        let (live, registry) = (&self.outbound().live, self.registry());
        let (actor, quarantined) = (live.live(id), registry.quarantine_of(id));
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = registry.failures_of(id);
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
        Some(OutboundView { sending_id: id, state, since, figures, restarts, last_failure, quarantined, memory })
    }

    /// Page of the live payouts and withdrawals after `after`, by id. The cost depends only on the page.
    pub fn outbound_live(&self, after: Option<OutboundId>, limit: usize) -> Vec<OutboundLine> {
        self.outbound().live.lines(after, limit)
    }
}
