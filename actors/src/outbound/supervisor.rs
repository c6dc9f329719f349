//! Supervisor of payouts and withdrawals: starts those with messages, and restarts those that fail.
//!
//! A failed one is restarted from the database after a pause, within its [`Budget`]; after that it is quarantined like
//! a payment, and the others continue. The supervisor keeps no state that the database does not have: at its start it
//! reads all live ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::CommandError;
use payferry_domain::outbound::{OutboundId, OutboundTransfer};
use payferry_journal::outbound;
use payferry_runtime::observe::{ActorKind, Behaviour, Cause, Mailbox, ended};
use payferry_runtime::supervise::Budget;
use ractor::{ActorId, ActorProcessingErr, MessagingErr, SupervisionEvent};
use tokio::task::JoinHandle;

use super::OutboundServices;
use super::actor::{Message, OutboundActor};

/// Rows per page when the supervisor starts.
const REHYDRATION_PAGE: u64 = 500;
/// Pause before a failed actor is restarted; doubles with each failure within its budget's window.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause before an outbound transfer that could not be read or started is tried again.
const RELOAD_PAUSE: Duration = Duration::from_secs(2);

pub(crate) enum OutboundMessage {
    /// Read and start all live ones.
    Rehydrate,
    /// Start a new one, just committed.
    Begin(Box<OutboundTransfer>),
    /// Message for one, live or not.
    Wake(OutboundId, Message),
    /// The pause before a retry is over.
    Retry(OutboundId),
    /// Ask every live one to resume its pending effects.
    ResumeAll,
}

/// Supervisor of all payouts and withdrawals.
pub(crate) struct OutboundSupervisor {
    services: Arc<OutboundServices>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Ids by actor: a failed actor is known only by its cell.
    owners: HashMap<ActorId, OutboundId>,
    budget: Budget<OutboundId>,
    put_off: PendingRetries,
}

/// Pending retries: one timer each, however often the missing actor was noticed.
#[derive(Default)]
struct PendingRetries {
    timers: HashMap<OutboundId, JoinHandle<()>>,
}

impl PendingRetries {
    /// Starts a timer, unless there is one.
    fn wait(&mut self, id: OutboundId, timer: impl FnOnce() -> JoinHandle<()>) {
        self.timers.entry(id).or_insert_with(timer);
    }

    /// Cancels the timer: the actor is running, is started now, or is quarantined.
    fn end(&mut self, id: OutboundId) {
        if let Some(timer) = self.timers.remove(&id) {
            timer.abort();
        }
    }
}

impl OutboundSupervisor {
    pub(crate) fn new(services: Arc<OutboundServices>) -> Self {
        Self { services }
    }
}

impl Behaviour for OutboundSupervisor {
    const KIND: ActorKind = ActorKind::SendingDesk;
    type Msg = OutboundMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<OutboundMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        self.services.live.take_over(myself.clone());
        myself.cast(OutboundMessage::Rehydrate)?;
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<OutboundMessage>,
        message: OutboundMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            OutboundMessage::Rehydrate => self.rehydrate(myself, state).await?,
            OutboundMessage::Begin(outbound) => {
                // The supervisor may already have read it, if it has just started.
                if self.services.live.live(outbound.id()).is_none() {
                    self.start(myself, *outbound, Message::Resume, state).await;
                }
            }
            OutboundMessage::Wake(id, message) => self.wake(myself, id, message, state).await,
            OutboundMessage::Retry(id) => {
                state.put_off.end(id);
                self.wake(myself, id, Message::Resume, state).await;
            }
            OutboundMessage::ResumeAll => {
                for actor in self.services.live.all() {
                    let _ = actor.cast(Message::Reload);
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<OutboundMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        let Some(id) = state.owners.remove(&cell.get_id()) else { return Ok(()) };
        self.services.live.leave(id, cell.get_id());
        // An actor that ended by itself was finished; a killed one ended with its supervisor.
        if matches!(cause, Cause::Panic | Cause::Error) {
            self.failed(myself, id, cause, &reason, state);
        }
        Ok(())
    }
}

/// Schedules a start after a pause.
fn put_off(myself: &Mailbox<OutboundMessage>, id: OutboundId, pause: Duration, state: &mut State) {
    state.put_off.wait(id, || myself.send_after(pause, move || OutboundMessage::Retry(id)));
}

/// Pause after the `nth` failure, counted from 1.
fn restart_pause(nth: usize) -> Duration {
    RESTART_PAUSE_MIN * (1 << (nth - 1))
}

impl OutboundSupervisor {
    /// Restarts a failed actor within its budget, or quarantines it.
    fn failed(&self, myself: &Mailbox<OutboundMessage>, id: OutboundId, cause: Cause, reason: &str, state: &mut State) {
        let now = Instant::now();
        state.budget.forget_old(now);
        if let Some(nth) = state.budget.spend(id, now) {
            self.services.registry.restarted(ActorKind::Sending, &id.to_string(), cause, reason);
            put_off(myself, id, restart_pause(nth), state);
        } else {
            state.put_off.end(id);
            self.services.registry.give_up(id, cause, reason);
        }
    }

    /// True if it needs no new actor: it is quarantined, or has one.
    fn is_taken_care_of(&self, id: OutboundId) -> bool {
        self.services.registry.is_quarantined(id) || self.services.live.live(id).is_some()
    }

    async fn rehydrate(&self, myself: &Mailbox<OutboundMessage>, state: &mut State) -> Result<(), ActorProcessingErr> {
        let mut after = String::new();
        loop {
            let page = outbound::load_live(&self.services.database, &after, REHYDRATION_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(&last.id);
            for row in page {
                match outbound::outbound_of(&row) {
                    Ok(outbound) if self.is_taken_care_of(outbound.id()) => {}
                    Ok(outbound) => self.start(myself, outbound, Message::Resume, state).await,
                    Err(error) => tracing::error!(sending.id = %row.id, %error, "{} cannot be read", row.id),
                }
            }
        }
    }

    /// Forwards a message to the actor, which is started if necessary, unless it is quarantined.
    async fn wake(&self, myself: &Mailbox<OutboundMessage>, id: OutboundId, message: Message, state: &mut State) {
        if self.services.registry.is_quarantined(id) {
            return message.refuse(CommandError::Quarantined);
        }
        let message = match self.services.live.live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // The actor has just left: start another one.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        match outbound::load(&self.services.database, id).await {
            Ok(Some(outbound)) => self.start(myself, outbound, message, state).await,
            Ok(None) => message.refuse(CommandError::NotFound),
            Err(error) => {
                // The message's facts are sent again: the settler and the screening repeat them until they are applied.
                tracing::warn!(sending.id = %id, %error, "{id} could not be started; retrying");
                message.refuse(CommandError::Unavailable(error.to_string()));
                put_off(myself, id, RELOAD_PAUSE, state);
            }
        }
    }

    async fn start(
        &self,
        myself: &Mailbox<OutboundMessage>,
        outbound: OutboundTransfer,
        message: Message,
        state: &mut State,
    ) {
        let id = outbound.id();
        let behaviour = OutboundActor::new(self.services.clone());
        match self.services.registry.spawn_unlisted(behaviour, Box::new(outbound), myself.get_cell()).await {
            Ok(actor) => {
                state.owners.insert(actor.get_id(), id);
                let _ = actor.cast(message);
                // Sent last, so that a finished one applies the message before it leaves again.
                let _ = actor.cast(Message::Resume);
                self.services.live.enter(id, actor);
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
        let id = OutboundId::Withdrawal(WithdrawalId::generate());
        let (mut put_off, mut started) = (PendingRetries::default(), 0);
        let mut wait = |put_off: &mut PendingRetries, id| {
            put_off.wait(id, || {
                started += 1;
                tokio::spawn(std::future::pending())
            });
            started
        };
        assert_eq!([wait(&mut put_off, id), wait(&mut put_off, id)], [1, 1]);
        let other = OutboundId::Withdrawal(WithdrawalId::generate());
        assert_eq!(wait(&mut put_off, other), 2, "each id has its own timer");
        put_off.end(id);
        assert_eq!(put_off.timers.keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(wait(&mut put_off, id), 3, "a new wait starts a new timer");
    }
}
