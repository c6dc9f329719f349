//! A payment's own ferryman: takes one command at a time, commits what the domain decides, then acts.
//!
//! It is a cache with a queue. Whatever goes wrong, it forgets what it knew and reads the row again.

use std::sync::Arc;

use payferry_domain::PaymentId;
use payferry_domain::payment::{self, Command, Effect, Payment, Rejection, resume};
use payferry_entities::idempotency_keys;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use serde::Serialize;

use super::effects::Services;
use super::shard::{Reminder, ShardMessage};
use super::store::{self, StoreError};
use crate::chain::LoadError;
use crate::journal::JournalError;
use crate::psps::PspError;

/// Attempts at one command when other writers keep moving the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before a payment whose write failed looks at its row again.
const RETRY_PAUSE_SECS: i64 = 1;

/// Makes the idempotency row of the answer to a command, from the payment as it will be after the commit.
pub type AnswerRow = Box<dyn Fn(&Payment) -> idempotency_keys::Model + Send + Sync>;

/// What a payment shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentView {
    /// Which.
    pub payment_id: PaymentId,
    /// Transitions made.
    pub version: u32,
    /// Where it stands.
    pub status: &'static str,
    /// Whether its memory may be behind its row.
    pub stale: bool,
    /// What is still owed.
    pub owes: Vec<Effect>,
}

/// A command that somebody waits for.
pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) answer: Option<AnswerRow>,
    pub(crate) reply: RpcReplyPort<Result<Payment, CommandFailure>>,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CommandFailure {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    #[error("no such payment")]
    Unknown,
    #[error("the payment is quarantined")]
    Quarantined,
    #[error("{0}")]
    Unavailable(String),
}

pub(crate) enum Message {
    /// A fact. Nobody waits.
    Take(Box<Command>),
    /// A command. Somebody waits.
    Ask(Box<Ask>),
    /// Do what is still owed.
    Resume,
    /// Show yourself.
    Observe(RpcReplyPort<PaymentView>),
    /// Panic, to see that nothing is lost by it.
    Panic,
}

impl Message {
    pub(crate) fn refuse_quarantined(self) {
        self.refuse(CommandFailure::Quarantined);
    }

    pub(crate) fn refuse_unknown(self) {
        self.refuse(CommandFailure::Unknown);
    }

    fn refuse(self, failure: CommandFailure) {
        if let Self::Ask(ask) = self {
            let _ = ask.reply.send(Err(failure));
        }
    }
}

/// The actor. Its state is the payment.
pub(crate) struct PaymentActor {
    services: Arc<Services>,
}

pub(crate) struct State {
    payment: Box<Payment>,
    /// A write failed or its outcome is unknown: the row knows better.
    stale: bool,
}

impl PaymentActor {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services }
    }
}

#[ractor::async_trait]
impl Actor for PaymentActor {
    type Msg = Message;
    type State = State;
    type Arguments = Box<Payment>;

    async fn pre_start(&self, _: ActorRef<Message>, payment: Box<Payment>) -> Result<State, ActorProcessingErr> {
        Ok(State { payment, stale: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let effects = match message {
            Message::Take(command) => self.take(&command, state).await?,
            Message::Ask(ask) => {
                let Ask { command, answer, reply } = *ask;
                match self.carry_out(&command, answer.as_ref(), state).await {
                    Ok(effects) => {
                        let _ = reply.send(Ok((*state.payment).clone()));
                        effects
                    }
                    Err(failure) => {
                        let _ = reply.send(Err(failure.answer()));
                        self.recover(failure, state)?
                    }
                }
            }
            Message::Resume => {
                if let Err(error) = self.refresh(state).await {
                    return self.recover(error, state).map(|_| ());
                }
                resume(&state.payment)
            }
            Message::Observe(reply) => {
                let _ = reply.send(state.view());
                Vec::new()
            }
            Message::Panic => panic!("panicked on purpose, as a test asked"),
        };
        self.act(&myself, state, &effects);
        Ok(())
    }
}

/// Why a command did not go through, with what the actor has to do about it.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    #[error(transparent)]
    Journal(JournalError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Psp(PspError),
    #[error(transparent)]
    Facts(LoadError),
    #[error("the row is gone")]
    Gone,
    #[error("the row kept moving")]
    Contended,
}

impl Failure {
    fn answer(&self) -> CommandFailure {
        match self {
            Self::Rejected(rejection) => CommandFailure::Rejected(rejection.clone()),
            Self::IdempotencyKeyTaken => CommandFailure::IdempotencyKeyTaken,
            other => CommandFailure::Unavailable(other.to_string()),
        }
    }
}

impl PaymentActor {
    async fn take(&self, command: &Command, state: &mut State) -> Result<Vec<Effect>, ActorProcessingErr> {
        match self.carry_out(command, None, state).await {
            Ok(effects) => Ok(effects),
            Err(failure) => self.recover(failure, state),
        }
    }

    /// After a failure: forget what is remembered and look again soon. What the database refused as wrong is a defect
    /// of ours: the supervisor hears of it.
    fn recover(&self, failure: Failure, state: &mut State) -> Result<Vec<Effect>, ActorProcessingErr> {
        match failure {
            // A person's command did not fit; a fact is never rejected.
            Failure::Rejected(_) | Failure::IdempotencyKeyTaken => return Ok(Vec::new()),
            Failure::Journal(JournalError::Refused(_))
            | Failure::Store(StoreError::Unreadable { .. })
            | Failure::Gone => {
                return Err(failure.into());
            }
            Failure::Journal(_) | Failure::Store(_) | Failure::Psp(_) | Failure::Facts(_) | Failure::Contended => {}
        }
        let id = state.payment.id();
        tracing::warn!(payment.id = %id, error = %failure, "payment {id} could not be written and is tried again");
        state.stale = true;
        let at = self.services.clock.real_now().plus_secs(RETRY_PAUSE_SECS);
        self.services.to_shard(&state.payment, ShardMessage::Remind(id, Reminder::Resume, at));
        Ok(Vec::new())
    }

    /// Decides, commits, and answers what is to be done then. Decides again on the row if somebody else moved it.
    async fn carry_out(
        &self,
        command: &Command,
        answer: Option<&AnswerRow>,
        state: &mut State,
    ) -> Result<Vec<Effect>, Failure> {
        let mut effects = Vec::new();
        if must_know_all(command, &state.payment) {
            effects = Box::pin(self.take_in_unapplied(state)).await?;
        }
        effects.extend(self.commit(command, answer, state).await?);
        Ok(effects)
    }

    async fn commit(
        &self,
        command: &Command,
        answer: Option<&AnswerRow>,
        state: &mut State,
    ) -> Result<Vec<Effect>, Failure> {
        for _ in 0..CONFLICTS_MAX {
            self.refresh(state).await?;
            let now = self.services.clock.now();
            let Some(transition) = payment::transition(&state.payment, command, now)? else {
                // Known already. The row about it must learn that, or it would be told again for ever.
                if let Some(unit) = store::applied_unit(&state.payment, command) {
                    self.services.journal.submit(unit).await.map_err(Failure::Journal)?;
                }
                return Ok(Vec::new());
            };
            let psp = self.services.psps.get(state.payment.terms.psp_id).await.map_err(Failure::Psp)?;
            let row = answer.map(|answer| answer(&transition.payment));
            let real_now = self.services.clock.real_now();
            let unit = store::transition_unit(&transition, command, row, real_now, |event| psp.wants(event))?;
            match self.services.journal.submit(unit).await {
                Ok(_) => {
                    count(&transition);
                    *state.payment = transition.payment;
                    return Ok(transition.effects);
                }
                Err(JournalError::Conflict) => state.stale = true,
                Err(JournalError::IdempotencyKeyTaken) => return Err(Failure::IdempotencyKeyTaken),
                Err(error) => {
                    state.stale = true;
                    return Err(Failure::Journal(error));
                }
            }
        }
        Err(Failure::Contended)
    }

    async fn take_in_unapplied(&self, state: &mut State) -> Result<Vec<Effect>, Failure> {
        let mut effects = Vec::new();
        let rows = store::unapplied_of(&self.services.database, state.payment.id()).await?;
        for fact in self.services.chains.facts(&self.services.database, &rows).await.map_err(Failure::Facts)? {
            effects.extend(self.commit(&Command::ObserveTransfer(fact), None, state).await?);
        }
        Ok(effects)
    }

    /// Reads the row again if what is remembered may be behind it.
    async fn refresh(&self, state: &mut State) -> Result<(), Failure> {
        if state.stale {
            let id = state.payment.id();
            *state.payment = store::load(&self.services.database, id).await?.ok_or(Failure::Gone)?;
            state.stale = false;
        }
        Ok(())
    }

    /// Carries out effects, after the commit.
    fn act(&self, myself: &ActorRef<Message>, state: &State, effects: &[Effect]) {
        for effect in effects {
            self.services.carry_out(&state.payment, effect);
        }
        let wallet = state.payment.terms.wallet;
        if effects.contains(&Effect::Passivate) && !state.payment.is_live() {
            // Money that comes from now on is found by its address in the database.
            self.services.chains.unwatch(wallet);
            self.services.router.leave(state.payment.id(), myself.get_id());
            let _ = myself.drain();
        }
    }
}

/// Whether the command may only be decided when every recorded transfer has been taken in: the message about one may
/// have been lost.
fn must_know_all(command: &Command, payment: &Payment) -> bool {
    match command {
        Command::PassDeadline { chain_time } => payment.awaits_deadline() && *chain_time >= payment.deadline(),
        Command::Cancel => true,
        _ => false,
    }
}

impl State {
    fn view(&self) -> PaymentView {
        PaymentView {
            payment_id: self.payment.id(),
            version: self.payment.version,
            status: self.payment.status.as_str(),
            stale: self.stale,
            owes: resume(&self.payment),
        }
    }
}

/// Counts what was committed; the one place where transitions are counted.
fn count(transition: &payment::Transition) {
    for event in &transition.events {
        metrics::counter!("payferry_payment_events_total", "event" => event.name()).increment(1);
    }
}
