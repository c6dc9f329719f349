//! Registry of live payouts and withdrawals and of their supervisor, shared by everything that sends them messages or
//! shows them.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;
use payferry_domain::CommandError;
use payferry_domain::outbound::OutboundId;
use payferry_runtime::observe::Mailbox;
use ractor::{ActorId, ActorStatus, MessagingErr};

use super::actor::Message;
use super::supervisor::OutboundMessage;
use crate::observe::{OutboundLine, read_outbound_note};

/// Live payouts and withdrawals by id, so that they can be read in pages.
#[derive(Default)]
pub(crate) struct LiveOutbound {
    live: RwLock<BTreeMap<OutboundId, Mailbox<Message>>>,
    /// Set while the supervisor is running.
    supervisor: RwLock<Option<Mailbox<OutboundMessage>>>,
}

impl LiveOutbound {
    /// Registers the supervisor. The actors of the previous one died with it unnoticed, so they are removed and will be
    /// started again.
    pub(crate) fn take_over(&self, supervisor: Mailbox<OutboundMessage>) {
        self.replace_supervisor(Some(supervisor));
    }

    /// Unregisters a supervisor that died and is not restarted yet.
    pub(crate) fn forget_supervisor(&self) {
        self.replace_supervisor(None);
    }

    fn replace_supervisor(&self, supervisor: Option<Mailbox<OutboundMessage>>) {
        *self.supervisor.write() = supervisor;
        let orphaned = std::mem::take(&mut *self.live.write());
        for actor in orphaned.into_values() {
            actor.kill();
        }
    }

    /// Sends a message to the supervisor. If it does not accept the message, a waiting caller gets an error.
    pub(crate) fn to_supervisor(&self, message: OutboundMessage) {
        let supervisor = self.supervisor.read().clone();
        let untaken = match supervisor {
            None => message,
            Some(supervisor) => match supervisor.cast(message) {
                // A stopped supervisor is restarted and then reads all rows again.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        if let OutboundMessage::Wake(_, message) = untaken {
            let reason = "the supervisor of payouts and withdrawals is not running; retry later";
            message.refuse(CommandError::Unavailable(reason.to_owned()));
        }
    }

    /// Has every live one do again what it still owes.
    pub(crate) fn resume_all(&self) {
        self.to_supervisor(OutboundMessage::ResumeAll);
    }

    /// Live actor of a payout or withdrawal.
    pub(crate) fn live(&self, id: OutboundId) -> Option<Mailbox<Message>> {
        self.live.read().get(&id).filter(|actor| actor.get_status() < ActorStatus::Draining).cloned()
    }

    /// Number of live actors.
    pub(crate) fn live_len(&self) -> usize {
        self.live.read().len()
    }

    /// All live actors.
    pub(crate) fn all(&self) -> Vec<Mailbox<Message>> {
        self.live.read().values().cloned().collect()
    }

    /// Page of the live ones after `after`, by id.
    pub(crate) fn lines(&self, after: Option<OutboundId>, limit: usize) -> Vec<OutboundLine> {
        let live = self.live.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let line = |(id, actor): (&OutboundId, &Mailbox<Message>)| {
            let registry = actor.actor_metrics();
            let (status, in_review, chain, version) = read_outbound_note(registry.note());
            OutboundLine {
                id: *id,
                status,
                in_review,
                chain,
                version,
                mailbox: registry.depth(),
                since: registry.since().into(),
            }
        };
        live.range((from, Bound::Unbounded)).take(limit).map(line).collect()
    }

    /// Adds an actor that was just started.
    pub(crate) fn enter(&self, id: OutboundId, actor: Mailbox<Message>) {
        self.live.write().insert(id, actor);
    }

    /// Removes an actor, unless another one has taken its place.
    pub(crate) fn leave(&self, id: OutboundId, actor: ActorId) {
        let mut live = self.live.write();
        if live.get(&id).is_some_and(|live| live.get_id() == actor) {
            live.remove(&id);
        }
    }
}
