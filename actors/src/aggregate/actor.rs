//! Actor of one aggregate: runs one command, commits, then runs the effects.
//!
//! It is a cache with a queue. After any error it drops its state and reads the row again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use payferry_domain::{CommandError, Timestamp};
use payferry_journal::{JournalError, JournalWrite, violations};
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Cause, Mailbox};
use payferry_runtime::trace::{Span, SpanKind};
use ractor::RpcReplyPort;
use serde::Serialize;

use super::{Aggregate, Aggregates, ChainProgress, Decided, SupervisorMessage, log_about, metrics};
use crate::failed::{Failed, Recovery};
use crate::observe::ActorSubject;

/// Maximum number of attempts at one command while other writers change the row.
const CONFLICTS_MAX: usize = 8;
/// Pause before an aggregate reads its row again after a failed write.
const RETRY_PAUSE_SECS: i64 = 1;

/// Variable that has actors leave as soon as their aggregates only wait.
#[cfg(feature = "faults")]
const REST_AT_ONCE: &str = "PAYFERRY_REST_AT_ONCE";

#[cfg(feature = "faults")]
fn rests_at_once() -> bool {
    static IS_SET: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| std::env::var_os(REST_AT_ONCE).is_some());
    *IS_SET
}

#[cfg(not(feature = "faults"))]
const fn rests_at_once() -> bool {
    false
}

/// State that an actor caches.
#[derive(Debug, Clone, Serialize)]
pub struct ActorMemory<E> {
    /// Number of transitions.
    pub version: u32,
    /// Status of the payment, payout or withdrawal.
    pub status: &'static str,
    /// True if the state may be behind the row.
    pub stale: bool,
    /// Pending effects.
    pub owes: Vec<E>,
}

/// Reply to the caller of a command: the aggregate afterwards.
pub(crate) type Reply<A> = RpcReplyPort<Result<A, CommandError<<A as Aggregate>::Rejection>>>;

/// Fact, or command with a waiting caller.
pub(crate) struct Request<A: Aggregate> {
    pub(crate) command: A::Command,
    pub(crate) rows: A::Rows,
    pub(crate) reply: Option<Reply<A>>,
}

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Message<A: Aggregate> {
    /// Run a command.
    Take(Box<Request<A>>),
    /// Its chain progressed: pass the deadline, or move it.
    Progressed(ChainProgress),
    /// Run the pending effects.
    Resume,
    /// Another writer changed the row: read it, then run the pending effects.
    Reload,
    /// Apply facts that were recorded but not notified.
    CatchUp,
    /// Another node changed the row or recorded facts: read the row, run the pending effects, and apply the facts.
    Touched,
    /// Leave, if the aggregate only waits.
    Rest,
    /// Request for the actor's state.
    Observe(RpcReplyPort<ActorMemory<A::Effect>>),
    /// Panic, to test that nothing is lost.
    #[cfg(feature = "faults")]
    Panic,
}

impl<A: Aggregate> Message<A> {
    /// Fact without a waiting caller.
    pub(crate) fn fact(command: A::Command) -> Self {
        Self::Take(Box::new(Request { command, rows: A::Rows::default(), reply: None }))
    }

    /// Replies to a waiting caller that the command had no effect.
    pub(crate) fn refuse(self, error: CommandError<A::Rejection>) {
        if let Self::Take(request) = self
            && let Some(reply) = request.reply
        {
            let _ = reply.send(Err(error));
        }
    }
}

pub(super) struct AggregateActor<A: Aggregate> {
    pub(super) aggregates: Arc<Aggregates<A>>,
}

pub(super) struct State<A: Aggregate> {
    aggregate: Box<A>,
    /// A write failed or its outcome is unknown: the row is authoritative.
    stale: bool,
    /// The aggregate ended, and another actor may serve it.
    has_left: bool,
    /// A client waits for the current command.
    has_caller: bool,
    /// Effects to run at the end of the current message. They remain valid even if its command fails.
    effects: Vec<A::Effect>,
}

type Outcome<A, T = ()> = Result<T, Failed<<A as Aggregate>::Rejection>>;

impl<A: Aggregate> Behaviour for AggregateActor<A> {
    const KIND: ActorKind = A::KIND;
    type Msg = Message<A>;
    type State = State<A>;
    type Arguments = Box<A>;

    fn message_name(message: &Self::Msg) -> &'static str {
        match message {
            Message::Take(request) => A::command_name(&request.command),
            other => other.into(),
        }
    }

    async fn pre_start(&self, myself: &Mailbox<Message<A>>, aggregate: Box<A>) -> ActorResult<State<A>> {
        myself.actor_metrics().set_note(aggregate.note());
        Ok(State::new(aggregate, false))
    }

    async fn handle(&self, myself: &Mailbox<Message<A>>, message: Message<A>, state: &mut State<A>) -> ActorResult {
        if state.has_left {
            self.pass_on(message, state);
            return Ok(());
        }
        state.has_caller = matches!(&message, Message::Take(request) if request.reply.is_some());
        let (outcome, reply) = match message {
            Message::Take(request) => {
                let Request { command, rows, reply } = *request;
                (self.carry_out(&command, &rows, reply.is_some(), state).await, reply)
            }
            Message::Progressed(progress) => (self.follow_chain(progress, state).await, None),
            Message::Resume => (self.resume(state).await, None),
            Message::Reload => {
                state.stale = true;
                (self.resume(state).await, None)
            }
            Message::CatchUp => (Box::pin(self.take_unapplied(state)).await, None),
            Message::Touched => {
                state.stale = true;
                let caught_up = Box::pin(async {
                    self.resume(state).await?;
                    self.take_unapplied(state).await
                });
                (caught_up.await, None)
            }
            Message::Rest => {
                self.rest(myself, state);
                return Ok(());
            }
            Message::Observe(reply) => {
                let _ = reply.send(state.memory());
                return Ok(());
            }
            #[cfg(feature = "faults")]
            Message::Panic => panic!("panicked on purpose for a test"),
        };
        if let Some(reply) = reply {
            let answer = outcome.as_ref().map(|()| (*state.aggregate).clone());
            let _ = reply.send(answer.map_err(|failed| failed.error.clone()));
        }
        if let Err(failed) = outcome {
            self.recover(failed, state)?;
        }
        myself.actor_metrics().set_note(state.aggregate.note());
        self.act(myself, state);
        if rests_at_once() {
            self.rest(myself, state);
        }
        Ok(())
    }
}

impl<A: Aggregate> AggregateActor<A> {
    /// Handles a failure: drops the state and retries soon. A write that the database rejected as invalid is a defect,
    /// so it is reported to the supervisor. So is a violated invariant, which quarantines the aggregate at once: a
    /// restart would decide the same from the same row.
    fn recover(&self, failed: Failed<A::Rejection>, state: &mut State<A>) -> ActorResult {
        let Failed { error, recovery } = failed;
        let id = state.aggregate.id();
        match recovery {
            Recovery::Nothing => return Ok(()),
            Recovery::Fail => return Err(error.into()),
            Recovery::Quarantine => {
                if let CommandError::Violated(violated) = &error {
                    violations::report(id, violated);
                }
                self.aggregates.registry.give_up(id, Cause::Error, &error.to_string());
                return Err(error.into());
            }
            Recovery::Retry => {}
        }
        log_about!(warn, id, "could not be written; retrying", error);
        state.stale = true;
        let at = self.aggregates.clock.real_now::<Timestamp>().plus_secs(RETRY_PAUSE_SECS);
        self.aggregates.to_supervisor(id, SupervisorMessage::Remind(id, at));
        Ok(())
    }

    async fn follow_chain(&self, progress: ChainProgress, state: &mut State<A>) -> Outcome<A> {
        self.refresh(state).await?;
        match state.aggregate.on_chain_progress(progress) {
            Some(command) => self.carry_out(&command, &A::Rows::default(), false, state).await,
            None => Ok(()),
        }
    }

    async fn resume(&self, state: &mut State<A>) -> Outcome<A> {
        self.refresh(state).await?;
        state.effects = state.aggregate.resume();
        Ok(())
    }

    /// Runs a command, again on the current row if another writer changed it. Before a client's command is rejected or has
    /// no effect, the row is read: another node may have changed it.
    async fn carry_out(
        &self,
        command: &A::Command,
        rows: &A::Rows,
        is_from_client: bool,
        state: &mut State<A>,
    ) -> Outcome<A> {
        let mut must_read = is_from_client;
        for _ in 0..CONFLICTS_MAX {
            must_read &= !state.stale;
            self.refresh(state).await?;
            if state.aggregate.must_know_all(command) {
                Box::pin(self.take_unapplied(state)).await?;
            }
            if self.attempt(command, rows, must_read, state).await? {
                return Ok(());
            }
        }
        Err(Failed::contended())
    }

    /// Exports the span of the step that a command reports, which ends now.
    fn trace_step(&self, command: &A::Command, state: &State<A>) {
        if let Some((name, begun_at)) = state.aggregate.step_before(command) {
            // The clock of the payments may be ahead of the wall clock.
            let took_ms = self.aggregates.clock.now::<Timestamp>().millis_since(begun_at);
            let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or_default());
            drop(Span::since(SystemTime::now() - took, state.aggregate.traceparent(), name, SpanKind::Internal));
        }
    }

    /// Attempts a command in a span.
    async fn attempt(
        &self,
        command: &A::Command,
        rows: &A::Rows,
        must_read: bool,
        state: &mut State<A>,
    ) -> Outcome<A, bool> {
        let mut span = Span::below(state.aggregate.traceparent(), A::command_name(command), SpanKind::Internal);
        span.set(A::KIND.as_str(), || state.aggregate.id().to_string());
        let attempted = self.decide_and_commit(command, rows, must_read, &span, state).await;
        span.fail(|| attempted.as_ref().err().map(|failed| failed.error.to_string()));
        attempted
    }

    /// Decides and commits; returns `false` if another writer changed the row, or may have changed it: the command would
    /// change nothing, and `must_read` is set.
    async fn decide_and_commit(
        &self,
        command: &A::Command,
        rows: &A::Rows,
        must_read: bool,
        span: &Span,
        state: &mut State<A>,
    ) -> Outcome<A, bool> {
        let decided = state.aggregate.decide(&self.aggregates, command, rows).await;
        if must_read && matches!(decided, Ok(Decided::Known(..)) | Err(Failed { recovery: Recovery::Nothing, .. })) {
            state.stale = true;
            return Ok(false);
        }
        let (write, transition) = match decided? {
            Decided::Known(write, due) => {
                match write {
                    None => {}
                    Some(write) => match self.submit(state, write, span).await {
                        Ok(()) => {}
                        Err(JournalError::Conflict) => {
                            state.stale = true;
                            return Ok(false);
                        }
                        Err(error) => return Err(error.into()),
                    },
                }
                state.effects.extend(due);
                return Ok(true);
            }
            Decided::Change(write, transition) => (write, transition),
        };
        if span.is_exported() {
            self.trace_step(command, state);
        }
        match self.submit(state, write, span).await {
            Ok(()) => {
                let (aggregate, due) = A::committed(transition, &self.aggregates);
                *state.aggregate = aggregate;
                state.effects.extend(due);
                Ok(true)
            }
            Err(JournalError::Conflict) => {
                state.stale = true;
                Ok(false)
            }
            Err(error) => {
                let failed = Failed::from(error);
                state.stale |= failed.recovery != Recovery::Nothing;
                Err(failed)
            }
        }
    }

    /// Submits a write. It is written even if this actor ends meanwhile: its successor may then have read the row too
    /// early, and gets a message to read it again.
    async fn submit(&self, state: &State<A>, write: JournalWrite, span: &Span) -> Result<(), JournalError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (aggregates, id) = (self.aggregates.clone(), state.aggregate.id());
        let write = if state.has_caller { write.urgent() } else { write };
        let span = span.child("journal.commit", SpanKind::Internal);
        tokio::spawn(async move {
            let outcome = aggregates.journal.submit(write).await.map(|_| ());
            drop(span);
            if answer.send(outcome).is_err() {
                aggregates.send(id, Message::Reload);
            }
        });
        answered.await.unwrap_or_else(|_| Err(JournalError::Unknown("the write was interrupted".to_owned())))
    }

    async fn take_unapplied(&self, state: &mut State<A>) -> Outcome<A> {
        for fact in state.aggregate.unapplied(&self.aggregates).await? {
            let mut conflicts = 0;
            while !self.attempt(&fact, &A::Rows::default(), false, state).await? {
                conflicts += 1;
                if conflicts == CONFLICTS_MAX {
                    return Err(Failed::contended());
                }
                self.refresh(state).await?;
            }
        }
        Ok(())
    }

    /// Reads the row again if the state may be stale. The writer that changed it may have ended before running its
    /// effects, so all pending effects are added here.
    async fn refresh(&self, state: &mut State<A>) -> Outcome<A> {
        if state.stale {
            let (id, version) = (state.aggregate.id(), state.aggregate.version());
            *state.aggregate = A::load(&self.aggregates.database, id).await?.ok_or_else(Failed::gone)?;
            state.stale = false;
            if state.aggregate.version() != version {
                state.effects.extend(state.aggregate.resume());
            }
        }
        Ok(())
    }

    /// Forwards a message that arrived after this actor left to the current actor, or to the supervisor, which starts
    /// one.
    fn pass_on(&self, message: Message<A>, state: &State<A>) {
        match message {
            // A newly started actor checks its pending effects by itself.
            Message::Resume | Message::Rest | Message::Observe(_) => {}
            message => self.aggregates.send(state.aggregate.id(), message),
        }
    }

    /// Leaves if the aggregate only waits. Its supervisor keeps its deadline, and starts another actor for the next message.
    fn rest(&self, myself: &Mailbox<Message<A>>, state: &mut State<A>) {
        let may_rest = !state.has_left && !state.stale && state.aggregate.waiting().is_some();
        if may_rest && self.aggregates.rest(&state.aggregate, myself.get_id()) {
            // Messages in the mailbox are passed on.
            state.has_left = true;
            let _ = myself.drain();
        }
    }

    /// Runs effects, after the commit.
    fn act(&self, myself: &Mailbox<Message<A>>, state: &mut State<A>) {
        if !self.aggregates.holds(state.aggregate.id()) {
            // The shard moved to another node, which runs the effects.
            return self.aggregates.touch(state.aggregate.id());
        }
        let effects = std::mem::take(&mut state.effects);
        for effect in effects.iter().filter(|effect| **effect != A::PASSIVATE) {
            state.aggregate.execute(&self.aggregates, effect);
        }
        if effects.contains(&A::PASSIVATE) && !state.aggregate.needs_actor() && !state.stale {
            self.aggregates.remove_ended(&state.aggregate, myself.get_id());
            // Messages in the mailbox are handled before the actor ends.
            state.has_left = true;
            let _ = myself.drain();
        }
    }
}

/// Runs a client's command on an aggregate whose shard another node holds: loads it, decides and commits. The version of the
/// row guards the commit. The other node is nudged and runs the effects.
pub(super) async fn guest<A: Aggregate>(aggregates: Arc<Aggregates<A>>, id: A::Id, request: Request<A>) {
    let Request { command, rows, reply } = request;
    metrics::GUESTS.add(&[("kind", A::KIND.as_str())], 1);
    let answered = async {
        if aggregates.registry.is_quarantined(id) {
            return Err(CommandError::Quarantined);
        }
        let loaded = A::load(&aggregates.database, id).await;
        let loaded = loaded.map_err(|error| CommandError::Unavailable(error.to_string()))?;
        let aggregate = Box::new(loaded.ok_or(CommandError::NotFound)?);
        let mut state = State::new(aggregate, true);
        let actor = AggregateActor { aggregates: aggregates.clone() };
        match actor.carry_out(&command, &rows, false, &mut state).await {
            Ok(()) => Ok(*state.aggregate),
            Err(Failed { error, recovery }) => {
                if let (Recovery::Quarantine, CommandError::Violated(violated)) = (recovery, &error) {
                    violations::report(id, violated);
                    aggregates.registry.give_up(id, Cause::Error, &error.to_string());
                }
                Err(error)
            }
        }
    };
    let answer = answered.await;
    aggregates.touch(id);
    if let Some(reply) = reply {
        let _ = reply.send(answer);
    }
}

impl<A: Aggregate> State<A> {
    const fn new(aggregate: Box<A>, has_caller: bool) -> Self {
        Self { aggregate, stale: false, has_left: false, has_caller, effects: Vec::new() }
    }

    fn memory(&self) -> ActorMemory<A::Effect> {
        let (aggregate, stale) = (&self.aggregate, self.stale);
        let (version, status) = (aggregate.version(), aggregate.status_name());
        ActorMemory { version, status, stale, owes: aggregate.resume() }
    }
}
