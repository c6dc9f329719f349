//! The desk of payouts and withdrawals: supervises them, wakes those that are asked for, and starts again those that fail.
//!
//! One that fails is restarted from the database after a pause, within its [`Budget`]; then it is quarantined, as a payment
//! is, and the others go on. The desk itself keeps nothing that the database does not know: at its own start it reads what
//! is live.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::CommandError;
use payferry_domain::sending::{Sending, SendingId};
use payferry_journal::outbound;
use payferry_runtime::observe::{ActorKind, Behaviour, Cause, Mailbox, ended};
use payferry_runtime::supervise::Budget;
use ractor::{ActorId, ActorProcessingErr, MessagingErr, SupervisionEvent};
use tokio::task::JoinHandle;

use super::SendingServices;
use super::actor::{Message, SendingActor};
use super::live::LiveSendings;

/// Sendings read at once.
const REHYDRATION_PAGE: u64 = 500;
/// Pause before a sending that failed is started again; doubles with each failure that its budget remembers.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause before a sending that could not be read or started is tried again.
const RELOAD_PAUSE: Duration = Duration::from_secs(2);

pub(crate) enum DeskMessage {
    /// Read all live ones and start them.
    Rehydrate,
    /// A new one, just committed.
    Begin(Box<Sending>),
    /// A message for one, live or not.
    Wake(SendingId, Message),
    /// The pause of one that was put off is over.
    Retry(SendingId),
    /// Have every live one do again what it owes.
    ResumeAll,
}

/// The supervisor.
pub(crate) struct SendingDesk {
    services: Arc<SendingServices>,
}

#[derive(Default)]
pub(crate) struct State {
    /// A failed actor is known by its cell alone.
    owners: HashMap<ActorId, SendingId>,
    budget: Budget<SendingId>,
    put_off: PutOff,
}

/// Those that are started again after a pause: one timer each, however many have seen that it does not run.
#[derive(Default)]
struct PutOff {
    timers: HashMap<SendingId, JoinHandle<()>>,
}

impl PutOff {
    /// Has one wait, unless it waits already.
    fn wait(&mut self, id: SendingId, timer: impl FnOnce() -> JoinHandle<()>) {
        self.timers.entry(id).or_insert_with(timer);
    }

    /// It waits no more: it runs, is tried now, or is given up.
    fn end(&mut self, id: SendingId) {
        if let Some(timer) = self.timers.remove(&id) {
            timer.abort();
        }
    }
}

impl SendingDesk {
    pub(crate) fn new(services: Arc<SendingServices>) -> Self {
        Self { services }
    }

    fn sendings(&self) -> &LiveSendings {
        &self.services.live
    }
}

impl Behaviour for SendingDesk {
    const KIND: ActorKind = ActorKind::SendingDesk;
    type Msg = DeskMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<DeskMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        self.sendings().take_over(myself.clone());
        myself.cast(DeskMessage::Rehydrate)?;
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<DeskMessage>,
        message: DeskMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Rehydrate => self.rehydrate(myself, state).await?,
            DeskMessage::Begin(sending) => {
                // The desk may have read it already, if it has just started.
                if self.sendings().live(sending.id()).is_none() {
                    self.start(myself, *sending, Message::Resume, state).await;
                }
            }
            DeskMessage::Wake(id, message) => self.wake(myself, id, message, state).await,
            DeskMessage::Retry(id) => {
                state.put_off.end(id);
                self.wake(myself, id, Message::Resume, state).await;
            }
            DeskMessage::ResumeAll => {
                for actor in self.sendings().all() {
                    let _ = actor.cast(Message::Reload);
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<DeskMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        let Some(id) = state.owners.remove(&cell.get_id()) else { return Ok(()) };
        self.sendings().leave(id, cell.get_id());
        // One that ended by itself was over; one that was killed ended with its desk.
        if matches!(cause, Cause::Panic | Cause::Error) {
            self.failed(myself, id, cause, &reason, state);
        }
        Ok(())
    }
}

/// Has a sending started again after a pause.
fn put_off(myself: &Mailbox<DeskMessage>, id: SendingId, pause: Duration, state: &mut State) {
    state.put_off.wait(id, || myself.send_after(pause, move || DeskMessage::Retry(id)));
}

/// How long a sending waits that has failed for the `nth` time, counted from 1.
fn restart_pause(nth: usize) -> Duration {
    RESTART_PAUSE_MIN * (1 << (nth - 1))
}

impl SendingDesk {
    /// Restarts a failed sending within its budget, or quarantines it.
    fn failed(&self, myself: &Mailbox<DeskMessage>, id: SendingId, cause: Cause, reason: &str, state: &mut State) {
        let now = Instant::now();
        state.budget.forget_old(now);
        if let Some(nth) = state.budget.spend(id, now) {
            self.services.books.restarted(ActorKind::Sending, &id.to_string(), cause, reason);
            put_off(myself, id, restart_pause(nth), state);
        } else {
            state.put_off.end(id);
            self.services.books.give_up(id, cause, reason);
        }
    }

    /// Whether it needs no actor: it is given up, or has one.
    fn is_taken_care_of(&self, id: SendingId) -> bool {
        self.services.books.is_quarantined(id) || self.sendings().live(id).is_some()
    }

    async fn rehydrate(&self, myself: &Mailbox<DeskMessage>, state: &mut State) -> Result<(), ActorProcessingErr> {
        let mut after = String::new();
        loop {
            let page = outbound::load_live(&self.services.database, &after, REHYDRATION_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(&last.id);
            for row in page {
                match outbound::sending_of(&row) {
                    Ok(sending) if self.is_taken_care_of(sending.id()) => {}
                    Ok(sending) => self.start(myself, sending, Message::Resume, state).await,
                    Err(error) => tracing::error!(sending.id = %row.id, %error, "{} cannot be read", row.id),
                }
            }
        }
    }

    /// Hands a message to a sending's actor, which is started if there is none, unless it is given up.
    async fn wake(&self, myself: &Mailbox<DeskMessage>, id: SendingId, message: Message, state: &mut State) {
        if self.services.books.is_quarantined(id) {
            return message.refuse(CommandError::Quarantined);
        }
        let message = match self.sendings().live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // It has just left: another is started.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        match outbound::load(&self.services.database, id).await {
            Ok(Some(sending)) => self.start(myself, sending, message, state).await,
            Ok(None) => message.refuse(CommandError::NotFound),
            Err(error) => {
                // What it brought is told again: the settler and the screening do that until it was taken in.
                tracing::warn!(sending.id = %id, %error, "{id} could not be started and is tried again");
                message.refuse(CommandError::Unavailable(error.to_string()));
                put_off(myself, id, RELOAD_PAUSE, state);
            }
        }
    }

    async fn start(&self, myself: &Mailbox<DeskMessage>, sending: Sending, message: Message, state: &mut State) {
        let id = sending.id();
        let behaviour = SendingActor::new(self.services.clone());
        match self.services.books.spawn_unlisted(behaviour, Box::new(sending), myself.get_cell()).await {
            Ok(actor) => {
                state.owners.insert(actor.get_id(), id);
                let _ = actor.cast(message);
                // Last, so that one that is over has taken the message in before it leaves again.
                let _ = actor.cast(Message::Resume);
                self.sendings().enter(id, actor);
                state.put_off.end(id);
            }
            Err(error) => {
                tracing::warn!(sending.id = %id, %error, "{id} has no actor yet");
                message.refuse(CommandError::Unavailable(error.to_string()));
                put_off(myself, id, RELOAD_PAUSE, state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::WithdrawalId;

    use super::*;

    #[tokio::test]
    async fn one_that_waits_has_one_timer() {
        let id = SendingId::Withdrawal(WithdrawalId::generate());
        let (mut put_off, mut started) = (PutOff::default(), 0);
        let mut wait = |put_off: &mut PutOff, id| {
            put_off.wait(id, || {
                started += 1;
                tokio::spawn(std::future::pending())
            });
            started
        };
        assert_eq!([wait(&mut put_off, id), wait(&mut put_off, id)], [1, 1]);
        let other = SendingId::Withdrawal(WithdrawalId::generate());
        assert_eq!(wait(&mut put_off, other), 2, "each has its own");
        put_off.end(id);
        assert_eq!(put_off.timers.keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(wait(&mut put_off, id), 3, "it waits again");
    }
}
