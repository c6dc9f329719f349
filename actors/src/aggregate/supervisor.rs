//! Supervisor of a shard of aggregates: starts those with messages, restarts those that fail, and keeps one timer wheel
//! for all of them.
//!
//! An aggregate that only waits, for a transfer or its deadline, has no actor: an actor that has no messages for some time leaves,
//! and none is started for such an aggregate when the supervisor starts. The next message starts it from its row.
//!
//! A failed aggregate is restarted from the database within its [`Budget`]; after that, or at once if it would violate
//! an invariant, it is quarantined, and its siblings continue. The supervisor keeps no state that the database does not
//! have. It periodically checks that every live aggregate has its actor, whatever prevented its start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::{Chain, CommandError, Timestamp};
use payferry_nodes::LeaseName;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Cause, Mailbox, ended};
use payferry_runtime::supervise::Budget;
use ractor::{ActorProcessingErr, RpcReplyPort, SupervisionEvent};

use super::Services;
use super::actor::Message;
use super::waiting::Resting;
use super::{Aggregate, Aggregates, ChainProgress, Found, log_about};
use crate::observe::{ActorSubject, Note};

/// Interval of the timer wheel.
const TICK: Duration = Duration::from_millis(250);
/// Interval of looks for actors that may leave because their aggregates only wait.
const REST_INTERVAL: Duration = Duration::from_secs(30);
/// Pause before an aggregate with an unreadable row is tried again.
const RELOAD_PAUSE: Duration = Duration::from_secs(2);
/// Interval of searches for live aggregates without an actor, or with an actor that is behind the row. Each one reads the id
/// and the version of all live ones.
const SWEEP_INTERVAL: Duration = Duration::from_mins(5);
/// The same on a node that shares the database: other nodes change rows, and their nudges may be lost.
const SWEEP_SHARED_INTERVAL: Duration = Duration::from_secs(30);
/// Ids of live aggregates per page of that search.
const SWEEP_PAGE: u64 = 1_000;
/// Minimum age of an aggregate that counts as missing its actor: before that, its creator may be about to start it.
const UNATTENDED_AFTER_MS: i64 = 10_000;

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SupervisorMessage<A: Aggregate> {
    /// Read and start all live aggregates of this supervisor in shards that this node holds.
    Rehydrate,
    /// This node got these shards: read and start their live aggregates, then reply.
    Gain(BTreeSet<u8>, RpcReplyPort<()>),
    /// This node lost shards: forget their timers.
    Lose,
    /// Message for an aggregate without a live actor.
    Wake(A::Id, Message<A>),
    /// Have the aggregate run its pending effects at this time, by the wall clock.
    Remind(A::Id, Timestamp),
    /// Send the command at this time, by the service's clock.
    SendAt(A::Id, Timestamp, A::Command),
    /// Notify the aggregates with a deadline on the chain.
    ChainProgressed(ChainProgress),
    /// Have the actors leave that have had no message since the last time and whose aggregates only wait.
    Rest,
    /// Ask every live aggregate to resume its pending effects.
    ResumeAll,
    /// Start live aggregates after this id that have no actor, and have actors that are behind read their rows.
    Sweep(Option<A::Id>),
    /// Turn the timer wheel.
    Tick,
}

/// Supervisor of a shard.
#[derive(Clone)]
pub(crate) struct Supervisor<A: Aggregate> {
    pub(crate) aggregates: Arc<Aggregates<A>>,
    pub(crate) index: usize,
}

pub(crate) struct State<A: Aggregate> {
    /// Deadlines that the chain has passed while the clock was moved, with the time of the chain.
    passed: Vec<(A::Id, Chain, Timestamp)>,
    /// Time, by the wall clock, at which an aggregate resumes its pending effects; once per aggregate, however many
    /// reminders were requested.
    resumes: HashMap<A::Id, Timestamp>,
    /// Commands by the time, by the service's clock, at which they are sent.
    scheduled: BTreeMap<(Timestamp, A::Id), A::Command>,
    budget: Budget<A::Id>,
    pub(super) resting: Resting<A>,
}

impl<A: Aggregate> State<A> {
    fn new() -> Self {
        let (resumes, scheduled, resting) = (HashMap::new(), BTreeMap::new(), Resting::default());
        Self { passed: Vec::new(), resumes, scheduled, budget: Budget::default(), resting }
    }

    fn remind_at(&mut self, id: A::Id, at: Timestamp) {
        let first = self.resumes.entry(id).or_insert(at);
        *first = at.min(*first);
    }
}

impl<A: Aggregate> Behaviour for Supervisor<A> {
    const KIND: ActorKind = A::SUPERVISOR;
    type Msg = SupervisorMessage<A>;
    type State = State<A>;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<Self::Msg>, (): ()) -> ActorResult<State<A>> {
        self.aggregates.set_supervisor(self.index, Some(myself.clone()));
        myself.cast(SupervisorMessage::Rehydrate)?;
        myself.send_interval(TICK, || SupervisorMessage::Tick);
        myself.send_interval(REST_INTERVAL, || SupervisorMessage::Rest);
        let interval = if self.aggregates.node.is_shared() { SWEEP_SHARED_INTERVAL } else { SWEEP_INTERVAL };
        myself.send_interval(interval, || SupervisorMessage::Sweep(None));
        Ok(State::new())
    }

    async fn handle(&self, myself: &Mailbox<Self::Msg>, message: Self::Msg, state: &mut State<A>) -> ActorResult {
        match message {
            SupervisorMessage::Rehydrate => {
                Box::pin(self.rehydrate(myself, self.aggregates.shards_of(self.index), false, state)).await?;
                self.aggregates.has_started(self.index);
            }
            SupervisorMessage::Gain(shards, reply) => {
                if let (Some(first), Some(last)) = (shards.first(), shards.last()) {
                    Box::pin(self.rehydrate(myself, *first..=*last, true, state)).await?;
                }
                let _ = reply.send(());
            }
            SupervisorMessage::Lose => {
                let holds = |id: &A::Id| self.aggregates.holds(*id);
                state.passed.retain(|(id, ..)| holds(id));
                state.resumes.retain(|id, _| holds(id));
                state.scheduled.retain(|(_, id), _| holds(id));
                state.resting.retain(holds);
            }
            SupervisorMessage::Wake(id, message) => Box::pin(self.wake(myself, id, Some(message), state)).await,
            SupervisorMessage::Remind(id, at) => state.remind_at(id, at),
            SupervisorMessage::SendAt(id, at, command) => drop(state.scheduled.insert((at, id), command)),
            SupervisorMessage::ChainProgressed(progress) => {
                self.chain_progressed(progress, state);
                Box::pin(self.notify_waiting(myself, state)).await;
            }
            SupervisorMessage::ResumeAll => {
                for (_, actor) in self.aggregates.live_in(self.index) {
                    let _ = actor.cast(Message::Resume);
                }
            }
            SupervisorMessage::Rest => self.rest(state),
            SupervisorMessage::Sweep(after) => Box::pin(self.sweep(myself, after, state)).await,
            SupervisorMessage::Tick => self.turn_wheel(myself, state).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<Self::Msg>,
        event: SupervisionEvent,
        state: &mut State<A>,
    ) -> ActorResult {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        // An actor that ended by itself was finished; a killed one was already removed.
        if let Some(id) = self.aggregates.forget(cell.get_id())
            && matches!(cause, Cause::Panic | Cause::Error)
            // A violated invariant has quarantined it already.
            && !self.aggregates.registry.is_quarantined(id)
        {
            Box::pin(self.restart(myself, id, cause, &reason, state)).await;
        }
        Ok(())
    }
}

impl<A: Aggregate> Supervisor<A> {
    /// Starts every live aggregate of the shard that does not only wait. An unavailable database fails the supervisor, which is
    /// restarted with back-off.
    async fn rehydrate(
        &self,
        myself: &Mailbox<SupervisorMessage<A>>,
        shards: RangeInclusive<u8>,
        is_gained: bool,
        state: &mut State<A>,
    ) -> ActorResult {
        let aggregates = &self.aggregates;
        if !shards.clone().any(|shard| aggregates.node.leases().holds(LeaseName::Shard(shard))) {
            return Ok(());
        }
        aggregates.set_loading(self.index, true);
        let mut pages = aggregates.loading.read(&aggregates.database, shards);
        loop {
            let page = pages.recv().await.ok_or("the reading of live aggregates has ended early")??;
            if page.is_empty() {
                break;
            }
            let mut waiting = Vec::new();
            for found in page {
                let id = found.id();
                if !aggregates.holds(id) || aggregates.registry.is_quarantined(id) || aggregates.is_known(id) {
                    continue;
                }
                let (aggregate, waits) = match found {
                    Found::Waiting(waits) => (None, Some(waits)),
                    Found::Whole(aggregate) => {
                        let waits = aggregate.waiting();
                        (Some(aggregate), waits)
                    }
                };
                if let Some(waits) = waits {
                    waiting.push(id);
                    aggregates.await_deadline(id, waits.chain, waits.deadline);
                    aggregates.wait(id, waits.note);
                    if A::is_behind(&waits, aggregate.as_deref(), aggregates) {
                        state.resting.catch_up(id);
                    }
                } else if let Some(aggregate) = aggregate {
                    let actor = aggregates.spawn(aggregate, myself.get_cell()).await?;
                    let _ = actor.cast(Message::Resume);
                    if is_gained {
                        // The notifications went to another node.
                        let _ = actor.cast(Message::CatchUp);
                    }
                }
            }
            if is_gained {
                for id in A::with_unapplied(&aggregates.database, &waiting).await? {
                    let _ = myself.cast(SupervisorMessage::Wake(id, Message::CatchUp));
                }
            }
        }
        aggregates.set_loading(self.index, false);
        // Messages to the previous actors may be lost.
        aggregates.chains.repeat_outcomes();
        Ok(())
    }

    /// Starts an aggregate without a live actor and forwards the message to it.
    pub(super) async fn wake(
        &self,
        myself: &Mailbox<SupervisorMessage<A>>,
        id: A::Id,
        message: Option<Message<A>>,
        state: &mut State<A>,
    ) {
        let refuse = |message: Option<Message<A>>, error| {
            if let Some(message) = message {
                message.refuse(error);
            }
        };
        if !self.aggregates.holds(id) {
            // The shard moved to another node meanwhile.
            return self.aggregates.send(id, message.unwrap_or(Message::Resume));
        }
        if self.aggregates.registry.is_quarantined(id) {
            return refuse(message, CommandError::Quarantined);
        }
        let actor = match self.aggregates.live(id) {
            Some(actor) => actor,
            None => match self.start(myself, id, |_| true).await {
                Ok(Some(actor)) => actor,
                Ok(None) => return refuse(message, CommandError::NotFound),
                Err(error) => {
                    // The message is dropped, but the start is retried. Sweeps and the settler repeat the message's
                    // facts, and a waiting caller gets an error.
                    log_about!(warn, id, "could not be started; retrying", error);
                    refuse(message, CommandError::Unavailable(error.to_string()));
                    return self.remind_after(id, RELOAD_PAUSE, state);
                }
            },
        };
        if let Some(message) = message {
            let _ = actor.cast(message);
        }
        // Sent last, so that an ended aggregate applies the message before it leaves again.
        let _ = actor.cast(Message::Resume);
        state.resumes.remove(&id);
    }

    /// Starts the actor of an aggregate from its row, if the row exists and satisfies `is_wanted`.
    async fn start(
        &self,
        myself: &Mailbox<SupervisorMessage<A>>,
        id: A::Id,
        is_wanted: fn(&A) -> bool,
    ) -> Result<Option<Mailbox<Message<A>>>, ActorProcessingErr> {
        let aggregate = A::load(&self.aggregates.database, id).await?.filter(is_wanted);
        let Some(aggregate) = aggregate else { return Ok(None) };
        self.aggregates.spawn(Box::new(aggregate), myself.get_cell()).await.map(Some)
    }

    /// Starts the live aggregates of a page that have no actor: they were committed after their creator had given up, or could
    /// not be started then. Has the actors that are behind read their rows: another node has changed them, and its nudge was
    /// lost. Then continues with the next page.
    async fn sweep(&self, myself: &Mailbox<SupervisorMessage<A>>, after: Option<A::Id>, state: &mut State<A>) {
        let Services { database, registry, clock, .. } = &**self.aggregates;
        if !self.aggregates.holds_any(self.index) {
            return;
        }
        let page = match A::live_versions(database, self.aggregates.shards_of(self.index), after, SWEEP_PAGE).await {
            Ok(page) => page,
            Err(error) => {
                let (kind, kinds, index) = (A::SUPERVISOR.as_str(), A::KIND.as_str(), self.index);
                tracing::warn!(%error, "{kind} {index} could not look for live {kinds}s without an actor");
                return;
            }
        };
        let Some((last, _)) = page.last().copied() else { return };
        let before = clock.real_now::<Timestamp>().as_millis().saturating_sub(UNATTENDED_AFTER_MS);
        for (id, version) in page {
            if let Some(actor) = self.aggregates.live(id) {
                // A commit that is just being made is read once more, which changes nothing.
                if Note::unpack(actor.actor_metrics().note()).version < version {
                    let _ = actor.cast(Message::Touched);
                }
                continue;
            }
            if let Some(note) = self.aggregates.waiting(id) {
                if Note::unpack(note).version < version {
                    self.wake(myself, id, Some(Message::Touched), state).await;
                }
                continue;
            }
            let is_attended = state.resumes.contains_key(&id) || registry.is_quarantined(id);
            if is_attended || !self.aggregates.holds(id) || A::made_at(id).as_millis() > before {
                continue;
            }
            // An aggregate that ended since the page was read needs no actor.
            match self.start(myself, id, A::needs_actor).await {
                Ok(Some(actor)) => {
                    log_about!(warn, id, "was live without an actor; started one");
                    A::unattended();
                    let _ = actor.cast(Message::Resume);
                }
                Ok(None) => {}
                Err(error) => log_about!(error, id, "is live but cannot be started", error),
            }
        }
        let _ = myself.cast(SupervisorMessage::Sweep(Some(last)));
    }

    fn remind_after(&self, id: A::Id, pause: Duration, state: &mut State<A>) {
        let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        state.remind_at(id, self.aggregates.clock.real_now::<Timestamp>().plus_millis(pause_ms));
    }

    /// Restarts a failed aggregate within its budget, or quarantines it.
    async fn restart(
        &self,
        myself: &Mailbox<SupervisorMessage<A>>,
        id: A::Id,
        cause: Cause,
        reason: &str,
        state: &mut State<A>,
    ) {
        let Some(nth) = state.budget.spend(id, Instant::now()) else {
            self.aggregates.registry.give_up(id, cause, reason);
            return;
        };
        self.aggregates.registry.restarted(A::KIND, &id.to_string(), cause, reason);
        match A::restart_pause(nth) {
            Duration::ZERO => self.wake(myself, id, None, state).await,
            pause => self.remind_after(id, pause, state),
        }
    }

    /// Notifies the aggregates with a deadline that the chain has passed, or those with any deadline of an outage.
    fn chain_progressed(&self, progress: ChainProgress, state: &mut State<A>) {
        let (ChainProgress::ReadTo(chain, _) | ChainProgress::Stalled(chain, _)) = progress;
        match progress {
            ChainProgress::ReadTo(_, block_time) => {
                let passed = self.aggregates.take_passed(self.index, chain, block_time);
                state.passed.extend(passed.into_iter().map(|id| (id, chain, block_time)));
                self.pass_deadlines(state);
            }
            ChainProgress::Stalled(..) => {
                let passed = state.passed.iter().filter(|(_, of, _)| *of == chain).map(|(id, ..)| *id).collect();
                let waiting = self.aggregates.with_deadline(self.index, chain);
                for id in [waiting, passed].concat() {
                    self.notify(id, progress, state);
                }
            }
        }
    }

    /// Notifies the aggregates whose deadline the chain has passed. While the clock is moved, the chains are ahead of it, and
    /// no deadline passes before its own time.
    fn pass_deadlines(&self, state: &mut State<A>) {
        if !self.aggregates.clock.is_moving() {
            for (id, chain, block_time) in std::mem::take(&mut state.passed) {
                self.notify(id, ChainProgress::ReadTo(chain, block_time), state);
            }
        }
    }

    /// Turns the wheel: sends due reminders and commands, and drops old failures.
    async fn turn_wheel(&self, myself: &Mailbox<SupervisorMessage<A>>, state: &mut State<A>) {
        let (now, real_now): (Timestamp, Timestamp) = (self.aggregates.clock.now(), self.aggregates.clock.real_now());
        let resumed: Vec<_> = state.resumes.extract_if(|_, at| *at <= real_now).map(|(id, _)| id).collect();
        for id in resumed {
            Box::pin(self.wake(myself, id, None, state)).await;
        }
        self.pass_deadlines(state);
        self.notify_waiting(myself, state).await;
        while let Some(first) = state.scheduled.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, id), command) = first.remove_entry();
            self.aggregates.send(id, Message::fact(command));
        }
        state.budget.forget_old(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::PaymentId;
    use payferry_domain::payment::{Command, Payment, Requester};

    use super::*;

    #[test]
    fn resume_is_scheduled_once_at_the_earliest_requested_time() {
        let (mut state, id, other) = (State::<Payment>::new(), PaymentId::generate(), PaymentId::generate());
        for (id, at) in [(id, 3_000), (id, 2_000), (id, 2_500), (other, 4_000)] {
            state.remind_at(id, Timestamp(at));
        }
        assert_eq!(state.resumes, HashMap::from([(id, Timestamp(2_000)), (other, Timestamp(4_000))]));
        // A settlement scheduled at two times is retried at both.
        for at in [1_000, 2_000, 2_000] {
            state.scheduled.insert((Timestamp(at), id), Command::RetrySettlement { by: Requester::Schedule });
        }
        assert_eq!(state.scheduled.len(), 2);
    }
}
