//! Actor of one payout or withdrawal: runs one command, commits, then runs the effects.
//!
//! It is a cache with a queue. After any error it drops its state and reads the row again.

use std::sync::Arc;
use std::time::Duration;

use payferry_domain::CommandError;
use payferry_domain::outbound::{self, Command, Effect, OutboundTransfer, Rejection, resume};
use payferry_entities::audit_log;
use payferry_journal::outbound as store;
use payferry_journal::payments::RequestRows;
use payferry_journal::{JournalError, JournalWrite};
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};
use ractor::{ActorProcessingErr, RpcReplyPort};
use serde::Serialize;

use super::OutboundServices;
use crate::compliance::{ScreenRequest, Subject};
use crate::failed::{Failed, Recovery};
use crate::observe::outbound_note;

/// Maximum number of attempts at one command while other writers change the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before an outbound transfer reads its row again after a failed write.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Reply port of a command with a waiting caller.
pub(crate) type Reply = RpcReplyPort<Result<OutboundTransfer, CommandError<Rejection>>>;

/// Fact, or command with a waiting caller.
pub(crate) struct QueuedCommand {
    pub(crate) command: Command,
    /// Audit row written in the same commit.
    pub(crate) audit: Option<audit_log::Model>,
    pub(crate) reply: Option<Reply>,
}

impl From<Command> for QueuedCommand {
    fn from(command: Command) -> Self {
        Self { command, audit: None, reply: None }
    }
}

/// State of the actor of a payout or withdrawal.
#[derive(Debug, Clone, Serialize)]
pub struct OutboundActorView {
    /// Number of transitions.
    pub version: u32,
    /// Status of the payout or withdrawal.
    pub status: &'static str,
    /// True if the state may be behind the row.
    pub stale: bool,
    /// Pending effects.
    pub owes: Vec<Effect>,
}

pub(crate) enum Message {
    /// Run a command.
    Take(Box<QueuedCommand>),
    /// Run the pending effects.
    Resume,
    /// Another writer changed the row: read it, then run the pending effects.
    Reload,
    /// Request for the actor's state.
    Observe(RpcReplyPort<OutboundActorView>),
    /// Panic, to test that nothing is lost.
    #[cfg(feature = "faults")]
    Panic,
}

impl Message {
    /// Replies to a waiting caller that the command had no effect.
    pub(crate) fn refuse(self, error: CommandError<Rejection>) {
        if let Self::Take(queued_command) = self
            && let Some(reply) = queued_command.reply
        {
            let _ = reply.send(Err(error));
        }
    }
}

/// Actor of one outbound transfer. Its state is the outbound transfer.
pub(crate) struct OutboundActor {
    services: Arc<OutboundServices>,
}

pub(crate) struct State {
    outbound: Box<OutboundTransfer>,
    /// A write failed or its outcome is unknown: the row is authoritative.
    stale: bool,
}

type Failure = Failed<Rejection>;

impl OutboundActor {
    pub(crate) fn new(services: Arc<OutboundServices>) -> Self {
        Self { services }
    }
}

impl Behaviour for OutboundActor {
    const KIND: ActorKind = ActorKind::Sending;
    type Msg = Message;
    type State = State;
    type Arguments = Box<OutboundTransfer>;

    async fn pre_start(
        &self,
        myself: &Mailbox<Message>,
        outbound: Box<OutboundTransfer>,
    ) -> Result<State, ActorProcessingErr> {
        myself.actor_metrics().set_note(outbound_note(&outbound));
        Ok(State { outbound, stale: false })
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (outcome, reply) = match message {
            Message::Take(queued_command) => (
                self.carry_out(myself, &queued_command.command, queued_command.audit.as_ref(), state).await,
                queued_command.reply,
            ),
            Message::Resume => (self.refresh(state).await.map(|()| resume(&state.outbound)), None),
            Message::Reload => {
                state.stale = true;
                (self.refresh(state).await.map(|()| resume(&state.outbound)), None)
            }
            Message::Observe(reply) => {
                let _ = reply.send(state.memory());
                return Ok(());
            }
            #[cfg(feature = "faults")]
            Message::Panic => panic!("panicked on purpose for a test"),
        };
        myself.actor_metrics().set_note(outbound_note(&state.outbound));
        let answer = match &outcome {
            Ok(_) => Ok((*state.outbound).clone()),
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

/// Handles a failure: drops the state and retries soon. A write that the database rejected as invalid is a defect, so
/// it is reported to the supervisor.
fn recover(myself: &Mailbox<Message>, failure: Failure, state: &mut State) -> Result<(), ActorProcessingErr> {
    match failure.recovery {
        Recovery::Nothing => return Ok(()),
        Recovery::Fail => return Err(failure.error.into()),
        Recovery::Retry => {}
    }
    let id = state.outbound.id();
    tracing::warn!(sending.id = %id, error = %failure.error, "{id} could not be written; retrying");
    state.stale = true;
    myself.send_after(RETRY_PAUSE, || Message::Resume);
    Ok(())
}

fn rejected(rejection: Rejection) -> Failure {
    Failed::refused(CommandError::Rejected(rejection))
}

impl OutboundActor {
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
                outbound::transition(&state.outbound, command, services.clock.now()).map_err(rejected)?
            else {
                if let Some(write) = store::known(&state.outbound, command, real_now) {
                    services.journal.submit(write).await?;
                }
                return Ok(resume(&state.outbound));
            };
            let psp = services.psps.get(state.outbound.order.psp_id).await?;
            let rows = RequestRows { idempotency: None, audit: audit.cloned() };
            let write =
                store::change(&transition, rows, real_now, psp.ceilings.send_daily_max, |event| psp.wants(event))?;
            match self.submit(myself, write).await {
                Ok(()) => {
                    *state.outbound = transition.outbound;
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

    /// Submits a write. It is written even if this actor ends meanwhile: its successor is then notified to read the
    /// row again.
    async fn submit(&self, myself: &Mailbox<Message>, write: JournalWrite) -> Result<(), JournalError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (services, myself) = (self.services.clone(), myself.clone());
        tokio::spawn(async move {
            let outcome = services.journal.submit(write).await.map(|_| ());
            if answer.send(outcome).is_err() {
                // An ended actor receives nothing more, and its successor has read the row or will read it.
                let _ = myself.cast(Message::Reload);
                services.live.resume_all();
            }
        });
        answered.await.unwrap_or_else(|_| Err(JournalError::Unknown("the write was interrupted".to_owned())))
    }

    async fn refresh(&self, state: &mut State) -> Result<(), Failure> {
        if state.stale {
            let found = store::load(&self.services.database, state.outbound.id()).await?;
            *state.outbound = found.ok_or_else(Failed::gone)?;
            state.stale = false;
        }
        Ok(())
    }

    /// Runs effects, after the commit.
    fn act(&self, myself: &Mailbox<Message>, state: &State, effects: &[Effect]) {
        let (services, outbound) = (&self.services, &state.outbound);
        let subject = Subject::OutboundTransfer(outbound.id());
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
                    services.nudge_webhooks(outbound.order.psp_id);
                }
                Effect::Passivate => {
                    services.live.leave(outbound.id(), myself.get_id());
                    let _ = myself.drain();
                }
            }
        }
    }
}

impl State {
    fn memory(&self) -> OutboundActorView {
        OutboundActorView {
            version: self.outbound.version,
            status: self.outbound.status.as_str(),
            stale: self.stale,
            owes: resume(&self.outbound),
        }
    }
}
