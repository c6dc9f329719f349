//! Which payouts and withdrawals are live, and the way to their desk. Shared by everything that speaks to them or shows
//! them.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;
use payferry_domain::CommandError;
use payferry_domain::sending::SendingId;
use payferry_runtime::observe::Mailbox;
use ractor::{ActorId, ActorStatus, MessagingErr};

use super::actor::Message;
use super::desk::DeskMessage;
use crate::observe::{SendingLine, read_sending_note};

/// The live ones, by id, so that they can be read a page at a time.
#[derive(Default)]
pub(crate) struct LiveSendings {
    live: RwLock<BTreeMap<SendingId, Mailbox<Message>>>,
    /// Set while it runs.
    desk: RwLock<Option<Mailbox<DeskMessage>>>,
}

impl LiveSendings {
    /// Makes the desk known. The actors of the one before it died with it, unseen by anybody: they are taken out, so that
    /// they are started again.
    pub(crate) fn take_over(&self, desk: Mailbox<DeskMessage>) {
        self.replace_desk(Some(desk));
    }

    /// The same where it died and is not started again yet.
    pub(crate) fn forget_desk(&self) {
        self.replace_desk(None);
    }

    fn replace_desk(&self, desk: Option<Mailbox<DeskMessage>>) {
        *self.desk.write() = desk;
        let orphaned = std::mem::take(&mut *self.live.write());
        for actor in orphaned.into_values() {
            actor.kill();
        }
    }

    /// Sends to the desk. Where it takes nothing, whoever waits for an answer hears that nothing came of it.
    pub(crate) fn to_desk(&self, message: DeskMessage) {
        let desk = self.desk.read().clone();
        let untaken = match desk {
            None => message,
            Some(desk) => match desk.cast(message) {
                // A stopped desk is restarted, and then reads everything anew.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        if let DeskMessage::Wake(_, message) = untaken {
            let reason = "the desk of payouts and withdrawals does not run at the moment";
            message.refuse(CommandError::Unavailable(reason.to_owned()));
        }
    }

    /// Has every live one do again what it still owes.
    pub(crate) fn resume_all(&self) {
        self.to_desk(DeskMessage::ResumeAll);
    }

    /// The live actor of one.
    pub(crate) fn live(&self, id: SendingId) -> Option<Mailbox<Message>> {
        self.live.read().get(&id).filter(|actor| actor.get_status() < ActorStatus::Draining).cloned()
    }

    /// How many there are.
    pub(crate) fn live_len(&self) -> usize {
        self.live.read().len()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Mailbox<Message>> {
        self.live.read().values().cloned().collect()
    }

    /// A page of them after `after`, in the order of their ids.
    pub(crate) fn lines(&self, after: Option<SendingId>, limit: usize) -> Vec<SendingLine> {
        let live = self.live.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let line = |(id, actor): (&SendingId, &Mailbox<Message>)| {
            let books = actor.books();
            let (status, in_review, chain, version) = read_sending_note(books.note());
            SendingLine {
                id: *id,
                status,
                in_review,
                chain,
                version,
                mailbox: books.depth(),
                since: books.since().into(),
            }
        };
        live.range((from, Bound::Unbounded)).take(limit).map(line).collect()
    }

    /// Adds one that was just started.
    pub(crate) fn enter(&self, id: SendingId, actor: Mailbox<Message>) {
        self.live.write().insert(id, actor);
    }

    /// Takes an actor out, unless another has taken its place.
    pub(crate) fn leave(&self, id: SendingId, actor: ActorId) {
        let mut live = self.live.write();
        if live.get(&id).is_some_and(|live| live.get_id() == actor) {
            live.remove(&id);
        }
    }
}
