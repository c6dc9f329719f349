//! Payouts and withdrawals as their actors show themselves.

use payferry_domain::Timestamp;
use payferry_domain::sending::SendingId;
use payferry_runtime::observe::{Failure, Figures, NodeState};
use serde::Serialize;

use super::System;
use super::show::ask;
use crate::observe::{Quarantine, SendingLine};
use crate::sending::{Message, SendingMemory};

/// The actor of a payout or withdrawal as it shows itself.
#[derive(Debug, Clone, Serialize)]
pub struct SendingView {
    /// Which.
    pub sending_id: SendingId,
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
    pub memory: Option<SendingMemory>,
}

impl System {
    /// Shows the actor of a payout or withdrawal; `None` if it has none and is not quarantined.
    pub async fn observe_sending(&self, id: SendingId) -> Option<SendingView> {
        let (live, books) = (&self.sendings().live, self.books());
        let (actor, quarantined) = (live.live(id), books.quarantine_of(id));
        if actor.is_none() && quarantined.is_none() {
            return None;
        }
        let (restarts, last_failure) = books.failures_of(id);
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
        Some(SendingView { sending_id: id, state, since, figures, restarts, last_failure, quarantined, memory })
    }

    /// A page of the live payouts and withdrawals after `after`, in the order of their ids. Cheap however many there are.
    pub fn sendings_live(&self, after: Option<SendingId>, limit: usize) -> Vec<SendingLine> {
        self.sendings().live.lines(after, limit)
    }
}
