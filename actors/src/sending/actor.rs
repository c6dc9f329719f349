//! One payout or withdrawal: takes one command at a time, commits what the domain decides, then acts.
//!
//! It is a cache with a queue. Whatever goes wrong, it forgets what it knew and reads the row again.

use std::sync::Arc;
use std::time::Duration;

use payferry_domain::CommandError;
use payferry_domain::sending::{self, Command, Effect, Rejection, Sending, resume};
use payferry_entities::audit_log;
use payferry_journal::payments::RowsBeside;
use payferry_journal::{JournalError, Unit, outbound};
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};
use ractor::{ActorProcessingErr, RpcReplyPort};
use serde::Serialize;

use super::SendingServices;
use crate::compliance::{ScreenRequest, Subject};
use crate::failed::{Failed, Recovery};
use crate::observe::sending_note;

/// Attempts at one command when other writers keep moving the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before a sending whose write failed looks at its row again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where the answer to a command goes, if somebody waits for it.
pub(crate) type Reply = RpcReplyPort<Result<Sending, CommandError<Rejection>>>;

/// A fact, or a command that somebody waits for.
pub(crate) struct Told {
    pub(crate) command: Command,
    /// Written in the commit that it makes.
    pub(crate) audit: Option<audit_log::Model>,
    pub(crate) reply: Option<Reply>,
}

impl From<Command> for Told {
    fn from(command: Command) -> Self {
        Self { command, audit: None, reply: None }
    }
}

/// What the actor of a payout or withdrawal remembers.
#[derive(Debug, Clone, Serialize)]
pub struct SendingMemory {
    /// Transitions made.
    pub version: u32,
    /// Where it stands.
    pub status: &'static str,
    /// Whether its memory may be behind its row.
    pub stale: bool,
    /// What is still owed.
    pub owes: Vec<Effect>,
}

pub(crate) enum Message {
    /// Take something in.
    Take(Box<Told>),
    /// Do what is still owed.
    Resume,
    /// The row was moved by somebody else: read it, and do what is owed.
    Reload,
    /// Show yourself.
    Observe(RpcReplyPort<SendingMemory>),
    /// Panic, to see that nothing is lost by it.
    Panic,
}

impl Message {
    /// Answers whoever waits that nothing comes of it.
    pub(crate) fn refuse(self, error: CommandError<Rejection>) {
        if let Self::Take(told) = self
            && let Some(reply) = told.reply
        {
            let _ = reply.send(Err(error));
        }
    }
}

/// The actor. Its state is the sending.
pub(crate) struct SendingActor {
    services: Arc<SendingServices>,
}

pub(crate) struct State {
    sending: Box<Sending>,
    /// A write failed or its outcome is unknown: the row knows better.
    stale: bool,
}

type Failure = Failed<Rejection>;

impl SendingActor {
    pub(crate) fn new(services: Arc<SendingServices>) -> Self {
        Self { services }
    }
}

impl Behaviour for SendingActor {
    const KIND: ActorKind = ActorKind::Sending;
    type Msg = Message;
    type State = State;
    type Arguments = Box<Sending>;

    async fn pre_start(&self, myself: &Mailbox<Message>, sending: Box<Sending>) -> Result<State, ActorProcessingErr> {
        myself.books().set_note(sending_note(&sending));
        Ok(State { sending, stale: false })
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (outcome, reply) = match message {
            Message::Take(told) => {
                (self.carry_out(myself, &told.command, told.audit.as_ref(), state).await, told.reply)
            }
            Message::Resume => (self.refresh(state).await.map(|()| resume(&state.sending)), None),
            Message::Reload => {
                state.stale = true;
                (self.refresh(state).await.map(|()| resume(&state.sending)), None)
            }
            Message::Observe(reply) => {
                let _ = reply.send(state.memory());
                return Ok(());
            }
            Message::Panic => panic!("panicked on purpose, as a test asked"),
        };
        myself.books().set_note(sending_note(&state.sending));
        let answer = match &outcome {
            Ok(_) => Ok((*state.sending).clone()),
            Err(failure) => Err(failure.error.clone()),
        };
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
        match outcome {
            Ok(effects) => self.act(myself, state, &effects),
            Err(failure) => recover(myself, failure, state)?,
        }
        Ok(())
    }
}

/// After a failure: forget what is remembered and look again soon. What the database refused as wrong is a defect of
/// ours: the desk hears of it.
fn recover(myself: &Mailbox<Message>, failure: Failure, state: &mut State) -> Result<(), ActorProcessingErr> {
    match failure.recovery {
        Recovery::Nothing => return Ok(()),
        Recovery::Fail => return Err(failure.error.into()),
        Recovery::Retry => {}
    }
    let id = state.sending.id();
    tracing::warn!(sending.id = %id, error = %failure.error, "{id} could not be written and is tried again");
    state.stale = true;
    myself.send_after(RETRY_PAUSE, || Message::Resume);
    Ok(())
}

fn rejected(rejection: Rejection) -> Failure {
    Failed::refused(CommandError::Rejected(rejection))
}

impl SendingActor {
    async fn carry_out(
        &self,
        myself: &Mailbox<Message>,
        command: &Command,
        audit: Option<&audit_log::Model>,
        state: &mut State,
    ) -> Result<Vec<Effect>, Failure> {
        for _ in 0..CONFLICTS_MAX {
            self.refresh(state).await?;
            let services = &self.services;
            let real_now = services.clock.real_now();
            let Some(transition) =
                sending::transition(&state.sending, command, services.clock.now()).map_err(rejected)?
            else {
                if let Some(unit) = outbound::known(&state.sending, command, real_now) {
                    services.journal.submit(unit).await?;
                }
                return Ok(resume(&state.sending));
            };
            let psp = services.psps.get(state.sending.order.psp_id).await?;
            let rows = RowsBeside { idempotency: None, audit: audit.cloned() };
            let unit =
                outbound::change(&transition, rows, real_now, psp.ceilings.send_daily_max, |event| psp.wants(event))?;
            match self.submit(myself, unit).await {
                Ok(()) => {
                    *state.sending = transition.sending;
                    return Ok(transition.effects);
                }
                Err(JournalError::Conflict) => state.stale = true,
                Err(error) => {
                    state.stale = true;
                    return Err(error.into());
                }
            }
        }
        Err(Failed::contended())
    }

    /// Has a unit written. It is written even if this actor is ended meanwhile: then whoever follows it is told to look
    /// again.
    async fn submit(&self, myself: &Mailbox<Message>, unit: Unit) -> Result<(), JournalError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (services, myself) = (self.services.clone(), myself.clone());
        tokio::spawn(async move {
            let outcome = services.journal.submit(unit).await.map(|_| ());
            if answer.send(outcome).is_err() {
                // An actor that has ended takes nothing any more, and the one that follows it has read the row or will.
                let _ = myself.cast(Message::Reload);
                services.live.resume_all();
            }
        });
        answered.await.unwrap_or_else(|_| Err(JournalError::Unknown("the writing was interrupted".to_owned())))
    }

    async fn refresh(&self, state: &mut State) -> Result<(), Failure> {
        if state.stale {
            let found = outbound::load(&self.services.database, state.sending.id()).await?;
            *state.sending = found.ok_or_else(Failed::gone)?;
            state.stale = false;
        }
        Ok(())
    }

    /// Carries out effects, after the commit.
    fn act(&self, myself: &Mailbox<Message>, state: &State, effects: &[Effect]) {
        let (services, sending) = (&self.services, &state.sending);
        let subject = Subject::Sending(sending.id());
        for effect in effects {
            match effect {
                Effect::Screen { to, amount, chain } => {
                    services.screen_address(ScreenRequest::of_recipient(subject, *chain, *to, *amount), None);
                }
                Effect::AwaitReview { to, amount, chain, alarm_at } => {
                    let request = ScreenRequest::of_recipient(subject, *chain, *to, *amount);
                    services.screen_address(request, Some(*alarm_at));
                }
                Effect::Send { chain, .. } => services.chains.nudge_settler(*chain),
                Effect::DeliverWebhooks => {
                    services.nudge_webhooks(sending.order.psp_id);
                }
                Effect::Passivate => {
                    services.live.leave(sending.id(), myself.get_id());
                    let _ = myself.drain();
                }
            }
        }
    }
}

impl State {
    fn memory(&self) -> SendingMemory {
        SendingMemory {
            version: self.sending.version,
            status: self.sending.status.as_str(),
            stale: self.stale,
            owes: resume(&self.sending),
        }
    }
}
