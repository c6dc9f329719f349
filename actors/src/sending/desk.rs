//! Supervisor of payouts and withdrawals: starts those with messages, and restarts those that fail.
//!
//! A failed one is restarted from the database after a pause, within its [`Budget`]; after that it is quarantined like
//! a payment, and the others continue. The supervisor keeps no state that the database does not have: at its start it
//! reads all live ones.

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

/// Rows per page when the supervisor starts.
const REHYDRATION_PAGE: u64 = 500;
/// Pause before a failed actor is restarted; doubles with each failure within its budget's window.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause before an outbound transfer that could not be read or started is tried again.
const RELOAD_PAUSE: Duration = Duration::from_secs(2);

pub(crate) enum DeskMessage {
    /// Read and start all live ones.
    Rehydrate,
    /// Start a new one, just committed.
    Begin(Box<Sending>),
    /// Message for one, live or not.
    Wake(SendingId, Message),
    /// The pause before a retry is over.
    Retry(SendingId),
    /// Ask every live one to resume its pending effects.
    ResumeAll,
}

/// Supervisor of all payouts and withdrawals.
pub(crate) struct SendingDesk {
    services: Arc<SendingServices>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Ids by actor: a failed actor is known only by its cell.
    owners: HashMap<ActorId, SendingId>,
    budget: Budget<SendingId>,
    put_off: PutOff,
}

/// Pending retries: one timer each, however often the missing actor was noticed.
#[derive(Default)]
struct PutOff {
    timers: HashMap<SendingId, JoinHandle<()>>,
}

impl PutOff {
    /// Starts a timer, unless there is one.
    fn wait(&mut self, id: SendingId, timer: impl FnOnce() -> JoinHandle<()>) {
        self.timers.entry(id).or_insert_with(timer);
    }

    /// Cancels the timer: the actor is running, is started now, or is quarantined.
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
                // The supervisor may already have read it, if it has just started.
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
        // An actor that ended by itself was finished; a killed one ended with its supervisor.
        if matches!(cause, Cause::Panic | Cause::Error) {
            self.failed(myself, id, cause, &reason, state);
        }
        Ok(())
    }
}

/// Schedules a start after a pause.
fn put_off(myself: &Mailbox<DeskMessage>, id: SendingId, pause: Duration, state: &mut State) {
    state.put_off.wait(id, || myself.send_after(pause, move || DeskMessage::Retry(id)));
}

/// Pause after the `nth` failure, counted from 1.
fn restart_pause(nth: usize) -> Duration {
    RESTART_PAUSE_MIN * (1 << (nth - 1))
}

impl SendingDesk {
    /// Restarts a failed actor within its budget, or quarantines it.
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

    /// True if it needs no new actor: it is quarantined, or has one.
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

    /// Forwards a message to the actor, which is started if necessary, unless it is quarantined.
    async fn wake(&self, myself: &Mailbox<DeskMessage>, id: SendingId, message: Message, state: &mut State) {
        if self.services.books.is_quarantined(id) {
            return message.refuse(CommandError::Quarantined);
        }
        let message = match self.sendings().live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // The actor has just left: start another one.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        match outbound::load(&self.services.database, id).await {
            Ok(Some(sending)) => self.start(myself, sending, message, state).await,
            Ok(None) => message.refuse(CommandError::NotFound),
            Err(error) => {
                // The message's facts are sent again: the settler and the screening repeat them until they are applied.
                tracing::warn!(sending.id = %id, %error, "{id} could not be started; retrying");
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
                // Sent last, so that a finished one applies the message before it leaves again.
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
    async fn waiting_retry_has_one_timer() {
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
        assert_eq!(wait(&mut put_off, other), 2, "each id has its own timer");
        put_off.end(id);
        assert_eq!(put_off.timers.keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(wait(&mut put_off, id), 3, "a new wait starts a new timer");
    }
}
