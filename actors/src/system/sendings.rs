//! Views of payouts and withdrawals and their actors.

use payferry_domain::Timestamp;
use payferry_domain::sending::SendingId;
use payferry_runtime::observe::{Failure, Figures, NodeState};
use serde::Serialize;

use super::System;
use super::show::ask;
use crate::observe::{Quarantine, SendingLine};
use crate::sending::{Message, SendingMemory};

/// View of the actor of a payout or withdrawal.
#[derive(Debug, Clone, Serialize)]
pub struct SendingView {
    /// Id of the payout or withdrawal.
    pub sending_id: SendingId,
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
    pub memory: Option<SendingMemory>,
}

impl System {
    /// View of the actor of a payout or withdrawal; `None` if it has none and is not quarantined.
    pub async fn observe_sending(&self, id: SendingId) -> Option<SendingView> {
        let (live, books) = (&self.sendings().live, self.books());
        let (actor, quarantined) = (live.live(id), books.quarantine_of(id));
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = books.failures_of(id);
        let state = if quarantined.is_some() { NodeState::Quarantined } else { NodeState::Running };
        // Read before the request, so that the request is not counted as waiting.
        let (since, figures) = match &actor {
            Some(actor) => (Some(actor.books().since().into()), actor.books().figures()),
            None => (None, Figures::default()),
        };
        let memory = match &actor {
            Some(actor) => ask(actor, Message::Observe).await,
            None => None,
        };
        Some(SendingView { sending_id: id, state, since, figures, restarts, last_failure, quarantined, memory })
    }

    /// Page of the live payouts and withdrawals after `after`, by id. The cost depends only on the page.
    pub fn sendings_live(&self, after: Option<SendingId>, limit: usize) -> Vec<SendingLine> {
        self.sendings().live.lines(after, limit)
    }
}
