//! A payment's own ferryman: takes one command at a time, commits what the domain decides, then acts.
//!
//! It is a cache with a queue. Whatever goes wrong, it forgets what it knew and reads the row again.

use std::borrow::Cow;
use std::sync::Arc;

use payferry_domain::payment::{self, Command, Effect, Event, Payment, Rejection, Requester, TransferStatus, resume};
use payferry_domain::{Amount, CommandError, Timestamp};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_journal::audit::{self, Actor, Entry};
use payferry_journal::{JournalError, Unit, payments};
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};
use ractor::{ActorProcessingErr, RpcReplyPort};
use serde::Serialize;

use super::PaymentServices;
use super::shard::{Reminder, ShardMessage};
use crate::failed::{Failed, Recovery};
use crate::observe::line_note;
use crate::services::Services;

/// Attempts at one command when other writers keep moving the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before a payment whose write failed looks at its row again.
const RETRY_PAUSE_SECS: i64 = 1;

/// Makes the idempotency row of the answer to a command, from the payment as it will be after the commit.
pub type AnswerRow = Box<dyn Fn(&Payment) -> idempotency_keys::Model + Send + Sync>;

/// What is written in the commit of what a command brings about, and only if it brings something about.
#[derive(Default)]
pub struct Beside {
    /// The answer, for the idempotency key that the command came with.
    pub answer: Option<AnswerRow>,
    /// Who asked for it.
    pub audit: Option<audit_log::Model>,
}

impl Beside {
    /// As `audit::row` makes it.
    #[must_use]
    pub fn audited(self, entry: Entry, by: &Actor, at: Timestamp) -> Self {
        Self { audit: Some(audit::row(entry, by, at)), ..self }
    }
}

impl From<Option<AnswerRow>> for Beside {
    fn from(answer: Option<AnswerRow>) -> Self {
        Self { answer, audit: None }
    }
}

/// What a payment's actor remembers.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentMemory {
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
    pub(crate) beside: Beside,
    pub(crate) reply: RpcReplyPort<Result<Payment, CommandError<Rejection>>>,
}

pub(crate) enum Message {
    /// A fact. Nobody waits.
    Take(Box<Command>),
    /// A command. Somebody waits.
    Ask(Box<Ask>),
    /// Do what is still owed.
    Resume,
    /// The row was moved by somebody else: read it, and do what is owed.
    Reload,
    /// Take in what was recorded and not told, then do what is owed.
    CatchUp,
    /// Show yourself.
    Observe(RpcReplyPort<PaymentMemory>),
    /// Panic, to see that nothing is lost by it.
    Panic,
}

impl Message {
    /// Answers whoever waits that nothing comes of it.
    pub(crate) fn refuse(self, error: CommandError<Rejection>) {
        if let Self::Ask(ask) = self {
            let _ = ask.reply.send(Err(error));
        }
    }
}

/// The actor. Its state is the payment.
pub(crate) struct PaymentActor {
    services: Arc<PaymentServices>,
}

pub(crate) struct State {
    payment: Box<Payment>,
    /// A write failed or its outcome is unknown: the row knows better.
    stale: bool,
    /// It was over, and another actor may serve the payment.
    has_left: bool,
}

impl PaymentActor {
    pub(crate) fn new(services: Arc<PaymentServices>) -> Self {
        Self { services }
    }
}

impl Behaviour for PaymentActor {
    const KIND: ActorKind = ActorKind::Payment;
    type Msg = Message;
    type State = State;
    type Arguments = Box<Payment>;

    async fn pre_start(&self, myself: &Mailbox<Message>, payment: Box<Payment>) -> Result<State, ActorProcessingErr> {
        myself.books().set_note(line_note(&payment));
        Ok(State { payment, stale: false, has_left: false })
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if state.has_left {
            self.pass_on(message, &state.payment);
            return Ok(());
        }
        let mut effects = Vec::new();
        match message {
            Message::Take(command) => {
                if let Err(failure) = self.carry_out(&command, &Beside::default(), state, &mut effects).await {
                    self.recover(failure, state)?;
                }
            }
            Message::Ask(ask) => {
                let Ask { command, beside, reply } = *ask;
                match self.carry_out(&command, &beside, state, &mut effects).await {
                    Ok(()) => {
                        let _ = reply.send(Ok((*state.payment).clone()));
                    }
                    Err(failure) => {
                        let _ = reply.send(Err(failure.error.clone()));
                        self.recover(failure, state)?;
                    }
                }
            }
            Message::Resume => self.resume(state, &mut effects).await?,
            Message::Reload => {
                state.stale = true;
                self.resume(state, &mut effects).await?;
            }
            Message::CatchUp => {
                if let Err(failure) = Box::pin(self.take_in_unapplied(state, &mut effects)).await {
                    self.recover(failure, state)?;
                }
            }
            Message::Observe(reply) => {
                let _ = reply.send(state.memory());
            }
            Message::Panic => panic!("panicked on purpose, as a test asked"),
        }
        myself.books().set_note(line_note(&state.payment));
        self.act(myself, state, &effects);
        Ok(())
    }
}

type Failure = Failed<Rejection>;

impl PaymentActor {
    /// After a failure: forget what is remembered and look again soon. What the database refused as wrong is a defect
    /// of ours: the supervisor hears of it.
    fn recover(&self, failure: Failure, state: &mut State) -> Result<(), ActorProcessingErr> {
        match failure.recovery {
            Recovery::Nothing => return Ok(()),
            Recovery::Fail => return Err(failure.error.into()),
            Recovery::Retry => {}
        }
        let id = state.payment.id();
        tracing::warn!(payment.id = %id, error = %failure.error, "payment {id} could not be written and is tried again");
        state.stale = true;
        let at = self.services.clock.real_now::<Timestamp>().plus_secs(RETRY_PAUSE_SECS);
        self.services.to_shard(&state.payment, ShardMessage::Remind(id, Reminder::Resume, at));
        Ok(())
    }

    async fn resume(&self, state: &mut State, effects: &mut Vec<Effect>) -> Result<(), ActorProcessingErr> {
        if let Err(failure) = self.refresh(state, effects).await {
            return self.recover(failure, state);
        }
        *effects = resume(&state.payment);
        Ok(())
    }

    /// Carries a command out, on the row again if somebody else moved it. What is to be done then is added to `effects`:
    /// it stands even if the command itself fails.
    async fn carry_out(
        &self,
        command: &Command,
        beside: &Beside,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        for _ in 0..CONFLICTS_MAX {
            self.refresh(state, effects).await?;
            if must_know_all(command, &state.payment) {
                Box::pin(self.take_in_unapplied(state, effects)).await?;
            }
            let command = self.as_it_is_now(command, &state.payment).await?;
            if self.attempt(&command, beside, state, effects).await? {
                return Ok(());
            }
        }
        Err(Failed::contended())
    }

    /// With what is set aside at this moment: whoever asked has seen older rows, and what was taken back since was told
    /// already, to a payment that did not list it.
    async fn as_it_is_now<'c>(&self, command: &'c Command, payment: &Payment) -> Result<Cow<'c, Command>, Failure> {
        let Command::TakeIn { observed } = command else { return Ok(Cow::Borrowed(command)) };
        let Services { database, chains, .. } = &**self.services;
        let rows = payments::set_aside_of(database, payment.id(), chains.names(), observed.len() as u64).await?;
        let observed = chains.facts(database, &rows).await?;
        Ok(Cow::Owned(Command::TakeIn { observed }))
    }

    /// Decides and commits; `false` if the row was moved by somebody else.
    async fn attempt(
        &self,
        command: &Command,
        beside: &Beside,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        let now = self.services.clock.now();
        let Some(transition) = payment::transition(&state.payment, command, now).map_err(rejected)? else {
            // Known already. The row about it must learn that, or it would be told again for ever.
            if let Some(unit) = payments::applied_unit(&state.payment, command, self.services.clock.real_now()) {
                self.submit(state, unit).await?;
            }
            effects.extend(still_in_review(command, &state.payment));
            return Ok(true);
        };
        let psp = self.services.psps.get(state.payment.terms.psp_id).await?;
        let send_max = psp.ceilings.send_max;
        if asked_of(&transition).is_some_and(|amount| amount > send_max) {
            return Err(Failed::refused(CommandError::AboveSendLimit { send_max }));
        }
        let rows = payments::RowsBeside {
            idempotency: beside.answer.as_ref().map(|answer| answer(&transition.payment)),
            audit: beside.audit.clone(),
        };
        let real_now = self.services.clock.real_now();
        let ceiling = psp.ceilings.send_daily_max;
        let is_sent = |event| psp.is_sent(event, &transition.announcements);
        let unit = payments::transition_unit(&state.payment, &transition, command, rows, real_now, ceiling, is_sent)?;
        match self.submit(state, unit).await {
            Ok(()) => {
                self.services.metrics.moved(&transition);
                *state.payment = transition.payment;
                effects.extend(transition.effects);
                Ok(true)
            }
            Err(JournalError::Conflict) => {
                state.stale = true;
                Ok(false)
            }
            Err(error) => {
                let failed = Failure::from(error);
                state.stale |= failed.recovery != Recovery::Nothing;
                Err(failed)
            }
        }
    }

    /// Has a unit written. It is written even if this actor is ended meanwhile: then whoever follows it may have read the
    /// row too early, and is told to look again.
    async fn submit(&self, state: &State, unit: Unit) -> Result<(), JournalError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (services, id) = (self.services.clone(), state.payment.id());
        tokio::spawn(async move {
            let outcome = services.journal.submit(unit).await.map(|_| ());
            if answer.send(outcome).is_err() {
                services.router.send(id, Message::Reload);
            }
        });
        answered.await.unwrap_or_else(|_| Err(JournalError::Unknown("the writing was interrupted".to_owned())))
    }

    async fn take_in_unapplied(&self, state: &mut State, effects: &mut Vec<Effect>) -> Result<(), Failure> {
        let rows = self.services.unapplied.of(state.payment.id()).await?;
        for fact in self.services.chains.facts(&self.services.database, &rows).await? {
            let observe = Command::ObserveTransfer(fact);
            let mut conflicts = 0;
            while !self.attempt(&observe, &Beside::default(), state, effects).await? {
                conflicts += 1;
                if conflicts == CONFLICTS_MAX {
                    return Err(Failed::contended());
                }
                self.refresh(state, effects).await?;
            }
        }
        Ok(())
    }

    /// Reads the row again if what is remembered may be behind it. Whoever moved it may not have lived to do what
    /// follows: all that is owed then is owed here.
    async fn refresh(&self, state: &mut State, effects: &mut Vec<Effect>) -> Result<(), Failure> {
        if state.stale {
            let id = state.payment.id();
            let version = state.payment.version;
            *state.payment = payments::load(&self.services.database, id).await?.ok_or_else(Failed::gone)?;
            state.stale = false;
            if state.payment.version != version {
                effects.extend(resume(&state.payment));
            }
        }
        Ok(())
    }

    /// Hands what came after this actor had left to the one that serves the payment now, or to its shard, which starts one.
    fn pass_on(&self, message: Message, payment: &Payment) {
        match message {
            // Whoever is started looks by itself at what is owed.
            Message::Resume | Message::Observe(_) => {}
            message => self.services.router.send(payment.id(), message),
        }
    }

    /// Carries out effects, after the commit.
    fn act(&self, myself: &Mailbox<Message>, state: &mut State, effects: &[Effect]) {
        for effect in effects {
            self.services.carry_out(&state.payment, effect);
        }
        if effects.contains(&Effect::Passivate) && !state.payment.is_live() && !state.stale {
            // Money that comes later is found by its address in the database.
            self.services.router.leave_over(&state.payment, myself.get_id(), self.services.chains.watchlist());
            // What waits in its mailbox is handled before it ends.
            state.has_left = true;
            let _ = myself.drain();
        }
    }
}

fn rejected(rejection: Rejection) -> Failure {
    Failed::refused(CommandError::Rejected(rejection))
}

/// Whether the command may only be decided when every recorded transfer has been taken in: the message about one may
/// have been lost.
fn must_know_all(command: &Command, payment: &Payment) -> bool {
    match command {
        Command::PassDeadline { chain_time } => payment.awaits_deadline() && *chain_time >= payment.deadline(),
        Command::ScreenTransfer { key, .. } => {
            payment.transfer(*key).is_some_and(|transfer| transfer.status == TransferStatus::Final)
        }
        // Money that counts from now on must not be such as the chain has taken back.
        Command::FinaliseTransfer { .. }
        | Command::TakeIn { .. }
        | Command::Cancel
        | Command::Accept { .. }
        | Command::RequestRefund { .. } => true,
        _ => false,
    }
}

/// A verdict that says nothing new about a transfer in review still ends the wait: the next one begins.
fn still_in_review(command: &Command, payment: &Payment) -> Vec<Effect> {
    let Command::ScreenTransfer { key: screened, .. } = command else { return Vec::new() };
    let mut owed = resume(payment);
    owed.retain(|effect| matches!(effect, Effect::AwaitReview { key, .. } if key == screened));
    owed
}

impl State {
    fn memory(&self) -> PaymentMemory {
        PaymentMemory {
            version: self.payment.version,
            status: self.payment.status.as_str(),
            stale: self.stale,
            owes: resume(&self.payment),
        }
    }
}

/// What the PSP itself asks to have sent. What follows by itself from its policies is part of the payment, which has a
/// ceiling of its own; and what could not be settled goes back whole or not at all.
fn asked_of(transition: &payment::Transition) -> Option<Amount> {
    transition.events.iter().find_map(|event| match event {
        Event::RefundRequested { refund, withdraws_settlement: false } if refund.requested_by == Requester::Psp => {
            Some(refund.amount)
        }
        _ => None,
    })
}
