//! Actor of one payment: runs one command, commits, then runs the effects.
//!
//! It is a cache with a queue. After any error it drops its state and reads the row again.

use std::borrow::Cow;
use std::sync::Arc;

use payferry_domain::payment::{self, Command, Effect, Event, Payment, Rejection, Requester, TransferStatus, resume};
use payferry_domain::{Amount, CommandError, Timestamp};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_journal::audit::{self, Actor, Entry};
use payferry_journal::{JournalError, JournalWrite, payments};
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};
use ractor::{ActorProcessingErr, RpcReplyPort};
use serde::Serialize;

use super::PaymentServices;
use super::shard::{Reminder, ShardMessage};
use crate::failed::{Failed, Recovery};
use crate::observe::line_note;
use crate::services::Services;

/// Maximum number of attempts at one command while other writers change the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before a payment reads its row again after a failed write.
const RETRY_PAUSE_SECS: i64 = 1;

/// Creates the idempotency row of a command's response, from the payment as it will be after the commit.
pub type AnswerRow = Box<dyn Fn(&Payment) -> idempotency_keys::Model + Send + Sync>;

/// Rows that are written together with the result of a command, and only if it has a result.
#[derive(Default)]
pub struct ResultRows {
    /// Response for the command's idempotency key.
    pub answer: Option<AnswerRow>,
    /// Audit entry of the requester.
    pub audit: Option<audit_log::Model>,
}

impl ResultRows {
    /// Adds an audit entry made by `audit::row`.
    #[must_use]
    pub fn audited(self, entry: Entry, by: &Actor, at: Timestamp) -> Self {
        Self { audit: Some(audit::row(entry, by, at)), ..self }
    }
}

impl From<Option<AnswerRow>> for ResultRows {
    fn from(answer: Option<AnswerRow>) -> Self {
        Self { answer, audit: None }
    }
}

/// State of a payment's actor.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentMemory {
    /// Number of transitions.
    pub version: u32,
    /// Status of the payment.
    pub status: &'static str,
    /// True if the state may be behind the row.
    pub stale: bool,
    /// Pending effects.
    pub owes: Vec<Effect>,
}

/// Command with a waiting caller.
pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) result_rows: ResultRows,
    pub(crate) reply: RpcReplyPort<Result<Payment, CommandError<Rejection>>>,
}

pub(crate) enum Message {
    /// Fact without a waiting caller.
    Take(Box<Command>),
    /// Command with a waiting caller.
    Ask(Box<Ask>),
    /// Run the pending effects.
    Resume,
    /// Another writer changed the row: read it, then run the pending effects.
    Reload,
    /// Apply transfers that were recorded but not notified, then run the pending effects.
    CatchUp,
    /// Request for the actor's state.
    Observe(RpcReplyPort<PaymentMemory>),
    /// Panic, to test that nothing is lost.
    #[cfg(feature = "faults")]
    Panic,
}

impl Message {
    /// Replies to a waiting caller that the command had no effect.
    pub(crate) fn refuse(self, error: CommandError<Rejection>) {
        if let Self::Ask(ask) = self {
            let _ = ask.reply.send(Err(error));
        }
    }
}

/// Actor of one payment. Its state is the payment.
pub(crate) struct PaymentActor {
    services: Arc<PaymentServices>,
}

pub(crate) struct State {
    payment: Box<Payment>,
    /// A write failed or its outcome is unknown: the row is authoritative.
    stale: bool,
    /// The payment ended, and another actor may serve it.
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
        myself.actor_metrics().set_note(line_note(&payment));
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
                if let Err(failure) = self.carry_out(&command, &ResultRows::default(), state, &mut effects).await {
                    self.recover(failure, state)?;
                }
            }
            Message::Ask(ask) => {
                let Ask { command, result_rows, reply } = *ask;
                match self.carry_out(&command, &result_rows, state, &mut effects).await {
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
            #[cfg(feature = "faults")]
            Message::Panic => panic!("panicked on purpose for a test"),
        }
        myself.actor_metrics().set_note(line_note(&state.payment));
        self.act(myself, state, &effects);
        Ok(())
    }
}

type Failure = Failed<Rejection>;

impl PaymentActor {
    /// Handles a failure: drops the state and retries soon. A write that the database rejected as invalid is a defect,
    /// so it is reported to the supervisor.
    fn recover(&self, failure: Failure, state: &mut State) -> Result<(), ActorProcessingErr> {
        match failure.recovery {
            Recovery::Nothing => return Ok(()),
            Recovery::Fail => return Err(failure.error.into()),
            Recovery::Retry => {}
        }
        let id = state.payment.id();
        tracing::warn!(payment.id = %id, error = %failure.error, "payment {id} could not be written; retrying");
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

    /// Runs a command, again on the current row if another writer changed it. Adds effects to `effects`; they remain
    /// valid even if the command itself fails.
    async fn carry_out(
        &self,
        command: &Command,
        result_rows: &ResultRows,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        for _ in 0..CONFLICTS_MAX {
            self.refresh(state, effects).await?;
            if must_know_all(command, &state.payment) {
                Box::pin(self.take_in_unapplied(state, effects)).await?;
            }
            let command = self.as_it_is_now(command, &state.payment).await?;
            if self.attempt(&command, result_rows, state, effects).await? {
                return Ok(());
            }
        }
        Err(Failed::contended())
    }

    /// Replaces the transfers of a `TakeIn` command with those that are set aside now. The caller saw older rows;
    /// transfers orphaned since were already notified, to a payment that did not list them.
    async fn as_it_is_now<'c>(&self, command: &'c Command, payment: &Payment) -> Result<Cow<'c, Command>, Failure> {
        let Command::TakeIn { observed } = command else { return Ok(Cow::Borrowed(command)) };
        let Services { database, chains, .. } = &**self.services;
        let rows = payments::set_aside_of(database, payment.id(), chains.names(), observed.len() as u64).await?;
        let observed = chains.facts(database, &rows).await?;
        Ok(Cow::Owned(Command::TakeIn { observed }))
    }

    /// Decides and commits; returns `false` if another writer changed the row.
    async fn attempt(
        &self,
        command: &Command,
        result_rows: &ResultRows,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        let now = self.services.clock.now();
        let Some(transition) = payment::transition(&state.payment, command, now).map_err(rejected)? else {
            // Already known. The row of the fact must be marked, or its notification would repeat forever.
            if let Some(write) = payments::applied_write(&state.payment, command, self.services.clock.real_now()) {
                self.submit(state, write).await?;
            }
            effects.extend(still_in_review(command, &state.payment));
            return Ok(true);
        };
        let psp = self.services.psps.get(state.payment.terms.psp_id).await?;
        let send_max = psp.ceilings.send_max;
        if asked_of(&transition).is_some_and(|amount| amount > send_max) {
            return Err(Failed::refused(CommandError::AboveSendLimit(send_max)));
        }
        let rows = payments::RequestRows {
            idempotency: result_rows.answer.as_ref().map(|answer| answer(&transition.payment)),
            audit: result_rows.audit.clone(),
        };
        let real_now = self.services.clock.real_now();
        let ceiling = psp.ceilings.send_daily_max;
        let is_sent = |event| psp.is_sent(event, &transition.announcements);
        let write = payments::transition_write(&state.payment, &transition, command, rows, real_now, ceiling, is_sent)?;
        match self.submit(state, write).await {
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

    /// Submits a write. It is written even if this actor ends meanwhile: its successor may then have read the row too
    /// early, and gets a message to read it again.
    async fn submit(&self, state: &State, write: JournalWrite) -> Result<(), JournalError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (services, id) = (self.services.clone(), state.payment.id());
        tokio::spawn(async move {
            let outcome = services.journal.submit(write).await.map(|_| ());
            if answer.send(outcome).is_err() {
                services.router.send(id, Message::Reload);
            }
        });
        answered.await.unwrap_or_else(|_| Err(JournalError::Unknown("the write was interrupted".to_owned())))
    }

    async fn take_in_unapplied(&self, state: &mut State, effects: &mut Vec<Effect>) -> Result<(), Failure> {
        let rows = self.services.unapplied.of(state.payment.id()).await?;
        for fact in self.services.chains.facts(&self.services.database, &rows).await? {
            let observe = Command::ObserveTransfer(fact);
            let mut conflicts = 0;
            while !self.attempt(&observe, &ResultRows::default(), state, effects).await? {
                conflicts += 1;
                if conflicts == CONFLICTS_MAX {
                    return Err(Failed::contended());
                }
                self.refresh(state, effects).await?;
            }
        }
        Ok(())
    }

    /// Reads the row again if the state may be stale. The writer that changed it may have ended before running its
    /// effects, so all pending effects are added here.
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

    /// Forwards a message that arrived after this actor left to the current actor, or to the shard, which starts one.
    fn pass_on(&self, message: Message, payment: &Payment) {
        match message {
            // A newly started actor checks its pending effects by itself.
            Message::Resume | Message::Observe(_) => {}
            message => self.services.router.send(payment.id(), message),
        }
    }

    /// Runs effects, after the commit.
    fn act(&self, myself: &Mailbox<Message>, state: &mut State, effects: &[Effect]) {
        for effect in effects {
            self.services.carry_out(&state.payment, effect);
        }
        if effects.contains(&Effect::Passivate) && !state.payment.is_live() && !state.stale {
            // Later transfers are found by their address in the database.
            self.services.router.leave_over(&state.payment, myself.get_id(), self.services.chains.watchlist());
            // Messages in the mailbox are handled before the actor ends.
            state.has_left = true;
            let _ = myself.drain();
        }
    }
}

fn rejected(rejection: Rejection) -> Failure {
    Failed::refused(CommandError::Rejected(rejection))
}

/// True if the command may only be decided after all recorded transfers have been applied: a notification may have been
/// lost.
fn must_know_all(command: &Command, payment: &Payment) -> bool {
    match command {
        Command::PassDeadline { chain_time } => payment.awaits_deadline() && *chain_time >= payment.deadline(),
        Command::ScreenTransfer { key, .. } => {
            payment.transfer(*key).is_some_and(|transfer| transfer.status == TransferStatus::Final)
        }
        // Transfers that count from now on must not have been orphaned.
        Command::FinaliseTransfer { .. }
        | Command::TakeIn { .. }
        | Command::Cancel
        | Command::Accept { .. }
        | Command::RequestRefund { .. } => true,
        _ => false,
    }
}

/// A verdict that changes nothing about a transfer in review still ends the wait: the next wait begins.
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

/// Amount that the PSP itself requested to send. Amounts that follow from its policies are part of the payment, which
/// has its own limit; funds that could not be settled are returned in full or not at all.
fn asked_of(transition: &payment::Transition) -> Option<Amount> {
    transition.events.iter().find_map(|event| match event {
        Event::RefundRequested { refund, withdraws_settlement: false } if refund.requested_by == Requester::Psp => {
            Some(refund.amount)
        }
        _ => None,
    })
}
