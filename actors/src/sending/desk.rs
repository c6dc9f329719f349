//! The desk of payouts and withdrawals: wakes those that are asked for, and starts again those that fail.
//!
//! It keeps nothing that the database does not know: at its own start it reads what is live.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::sending::{Sending, SendingId};
use ractor::{ActorId, ActorProcessingErr, ActorStatus, MessagingErr, SupervisionEvent};

use super::actor::{CommandFailure, Message, SendingActor, Told};
use super::store;
use crate::observe::{ActorKind, Behaviour, Cause, Mailbox, ended};
use crate::payment::Services;

/// Sendings read at once.
const REHYDRATION_PAGE: u64 = 500;
/// Pause before a sending that failed, or that could not be read, is started again; doubles with each failure.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest of those pauses.
const RESTART_PAUSE_MAX: Duration = Duration::from_mins(1);
/// A sending that ran for so long starts with the shortest pause again.
const FORGIVEN_AFTER: Duration = Duration::from_mins(1);

pub(crate) enum DeskMessage {
    /// Read all live ones and start them.
    Rehydrate,
    /// A new one, just committed.
    Begin(Box<Sending>),
    /// A fact or command for one, live or not.
    Take(SendingId, Box<Told>),
    /// Start one again that failed.
    Start(SendingId),
    /// Have every live one do again what it owes.
    ResumeAll,
}

/// The supervisor.
pub(crate) struct SendingDesk {
    services: Arc<Services>,
}

#[derive(Default)]
pub(crate) struct State {
    live: HashMap<SendingId, Mailbox<Message>>,
    /// A failed actor is known by its cell alone.
    owners: HashMap<ActorId, SendingId>,
    failures: HashMap<SendingId, (Instant, Duration)>,
}

impl SendingDesk {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services }
    }
}

impl Behaviour for SendingDesk {
    const KIND: ActorKind = ActorKind::SendingDesk;
    type Msg = DeskMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<DeskMessage>, (): ()) -> Result<State, ActorProcessingErr> {
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
            DeskMessage::Begin(sending) => self.start(myself, *sending, Message::Resume, state).await,
            DeskMessage::Take(id, told) => self.wake(myself, id, Message::Take(told), state).await,
            DeskMessage::Start(id) => self.wake(myself, id, Message::Resume, state).await,
            DeskMessage::ResumeAll => {
                for actor in state.live.values() {
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
        if state.live.get(&id).is_some_and(|actor| actor.get_id() == cell.get_id()) {
            state.live.remove(&id);
        }
        if matches!(cause, Cause::Panic | Cause::Error) {
            self.services.books.restarted(ActorKind::Sending, &id.to_string(), cause, &reason);
            put_off(myself, id, state);
        }
        Ok(())
    }
}

/// Has a sending started again after a pause.
fn put_off(myself: &Mailbox<DeskMessage>, id: SendingId, state: &mut State) {
    let now = Instant::now();
    state.failures.retain(|_, (at, _)| now.duration_since(*at) < FORGIVEN_AFTER + RESTART_PAUSE_MAX);
    let (at, pause) = state.failures.entry(id).or_insert((now, RESTART_PAUSE_MIN));
    *at = now;
    let wait = *pause;
    *pause = (*pause * 2).min(RESTART_PAUSE_MAX);
    myself.send_after(wait, move || DeskMessage::Start(id));
}

impl SendingDesk {
    async fn rehydrate(&self, myself: &Mailbox<DeskMessage>, state: &mut State) -> Result<(), ActorProcessingErr> {
        let mut after = String::new();
        loop {
            let page = store::load_live(&self.services.database, &after, REHYDRATION_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(&last.id);
            for row in page {
                match store::sending_of(&row) {
                    Ok(sending) => self.start(myself, sending, Message::Resume, state).await,
                    Err(error) => tracing::error!(sending.id = %row.id, %error, "{} cannot be read", row.id),
                }
            }
        }
    }

    /// Hands a message to a sending's actor, which is started if there is none.
    async fn wake(&self, myself: &Mailbox<DeskMessage>, id: SendingId, message: Message, state: &mut State) {
        let message = match state.live.get(&id).filter(|actor| actor.get_status() < ActorStatus::Draining) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // It has just left: another is started.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        match store::load(&self.services.database, id).await {
            Ok(Some(sending)) => self.start(myself, sending, message, state).await,
            Ok(None) => refuse(message, CommandFailure::Unknown),
            Err(error) => {
                // What it brought is told again: the settler and the screening do that until it was taken in.
                tracing::warn!(sending.id = %id, %error, "{id} could not be started and is tried again");
                refuse(message, CommandFailure::Unavailable(error.to_string()));
                put_off(myself, id, state);
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
                state.live.insert(id, actor);
            }
            Err(error) => {
                tracing::warn!(sending.id = %id, %error, "{id} has no actor yet");
                refuse(message, CommandFailure::Unavailable(error.to_string()));
                put_off(myself, id, state);
            }
        }
    }
}

fn refuse(message: Message, failure: CommandFailure) {
    if let Message::Take(told) = message
        && let Some(reply) = told.reply
    {
        let _ = reply.send(Err(failure));
    }
}
