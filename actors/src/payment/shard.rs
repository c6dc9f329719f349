//! Shard: supervises its payments, starts those with messages, and keeps one timer wheel for all of them.
//!
//! A failed payment is restarted from the database within its [`Budget`]; after that it is quarantined, and its
//! siblings continue. The shard keeps no state that the database does not have. It periodically checks that every live
//! payment has its actor, whatever prevented its start.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::payment::{Command, Outage, Payment, Requester};
use payferry_domain::{Chain, CommandError, PaymentId, Timestamp};
use payferry_journal::payments;
use payferry_runtime::observe::{ActorKind, Behaviour, Cause, Mailbox, ended};
use payferry_runtime::supervise::Budget;
use ractor::{ActorProcessingErr, SupervisionEvent};

use super::PaymentServices;
use super::actor::Message;
use super::router::LOGICAL_SHARDS;
use crate::services::Services;

/// Interval of the timer wheel.
const TICK: Duration = Duration::from_millis(250);
/// Payments per page when the shard starts.
const REHYDRATION_PAGE: u64 = 1_000;
/// Pause before a payment with an unreadable row is tried again.
const RELOAD_PAUSE_SECS: i64 = 2;
/// Interval of searches for live payments without an actor. Each one reads the index of all live payments.
const SWEEP_INTERVAL: Duration = Duration::from_mins(5);
/// Ids of live payments per page of that search.
const SWEEP_PAGE: u64 = 1_000;
/// Minimum age of a payment that counts as missing its actor: before that, its initiator may be about to start it.
const UNATTENDED_AFTER_MS: i64 = 10_000;

/// Reason of a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reminder {
    /// Run the pending effects: a write failed.
    Resume,
    /// Retry the settlement.
    RetrySettlement,
}

pub(crate) enum ShardMessage {
    /// Read and start all live payments of this shard.
    Rehydrate,
    /// Message for a payment without a live actor.
    Wake(PaymentId, Message),
    /// Notify the payment when its chain has been read up to this time.
    AwaitDeadline(PaymentId, Chain, Timestamp),
    /// Remind the payment at this time.
    Remind(PaymentId, Reminder, Timestamp),
    /// See [`crate::inbox::PaymentInbox::chain_progressed`].
    ChainProgressed(Chain, Timestamp),
    /// See [`crate::inbox::PaymentInbox::chain_stalled`].
    ChainStoodStill { chain: Chain, outage: Outage },
    /// Ask every live payment to resume its pending effects.
    ResumeAll,
    /// Start live payments after this id that have no actor.
    Sweep(Option<PaymentId>),
    /// Turn the timer wheel.
    Tick,
}

/// Supervisor of a shard.
pub(crate) struct Shard {
    services: Arc<PaymentServices>,
    index: usize,
}

#[derive(Default)]
pub(crate) struct State {
    deadlines: HashMap<Chain, BTreeSet<(Timestamp, PaymentId)>>,
    /// Time, by the wall clock, at which a payment resumes its pending effects; once per payment, however many
    /// reminders were requested.
    resumes: HashMap<PaymentId, Timestamp>,
    /// Time, by the service's clock, at which a settlement is retried.
    retries: BTreeSet<(Timestamp, PaymentId)>,
    budget: Budget<PaymentId>,
}

impl State {
    fn remind_at(&mut self, id: PaymentId, reminder: Reminder, at: Timestamp) {
        match reminder {
            Reminder::Resume => {
                let first = self.resumes.entry(id).or_insert(at);
                *first = at.min(*first);
            }
            Reminder::RetrySettlement => {
                self.retries.insert((at, id));
            }
        }
    }
}

impl Shard {
    /// Creates the supervisor with this index.
    pub(crate) fn new(services: Arc<PaymentServices>, index: usize) -> Self {
        Self { services, index }
    }

    fn logical(&self) -> std::ops::RangeInclusive<u8> {
        let width = LOGICAL_SHARDS / self.services.router.shards_len();
        let first = u8::try_from(self.index * width).expect("a logical shard fits a byte");
        let last = u8::try_from((self.index + 1) * width - 1).expect("a logical shard fits a byte");
        first..=last
    }
}

impl Behaviour for Shard {
    const KIND: ActorKind = ActorKind::Shard;
    type Msg = ShardMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<ShardMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        self.services.rehydrated.lock().remove(&self.index);
        self.services.router.take_over(self.index, myself.clone());
        myself.cast(ShardMessage::Rehydrate)?;
        myself.send_interval(TICK, || ShardMessage::Tick);
        myself.send_interval(SWEEP_INTERVAL, || ShardMessage::Sweep(None));
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<ShardMessage>,
        message: ShardMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ShardMessage::Rehydrate => Box::pin(self.rehydrate(myself)).await?,
            ShardMessage::Wake(id, message) => Box::pin(self.wake(myself, id, Some(message), state)).await,
            ShardMessage::AwaitDeadline(id, chain, at) => {
                state.deadlines.entry(chain).or_default().insert((at, id));
            }
            ShardMessage::Remind(id, reminder, at) => state.remind_at(id, reminder, at),
            ShardMessage::ChainProgressed(chain, block_time) => self.pass_deadlines(chain, block_time, state),
            ShardMessage::ChainStoodStill { chain, outage: Outage { id, from, to } } => {
                for (_, payment_id) in state.deadlines.get(&chain).into_iter().flatten() {
                    self.notify_live(*payment_id, Command::MoveDeadline { outage: id, from, to });
                }
            }
            ShardMessage::ResumeAll => {
                for actor in self.services.router.live_in(self.index) {
                    let _ = actor.cast(Message::Resume);
                }
            }
            ShardMessage::Sweep(after) => Box::pin(self.sweep(myself, after, state)).await,
            ShardMessage::Tick => self.remind(myself, state).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<ShardMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        // An actor that ended by itself was finished; a killed one was already removed.
        if let Some(id) = self.services.router.forget(cell.get_id())
            && matches!(cause, Cause::Panic | Cause::Error)
        {
            Box::pin(self.restart(myself, id, cause, &reason, state)).await;
        }
        Ok(())
    }
}

impl Shard {
    /// Starts every live payment of the shard. An unavailable database fails the shard, which is restarted with
    /// back-off.
    async fn rehydrate(&self, myself: &Mailbox<ShardMessage>) -> Result<(), ActorProcessingErr> {
        let mut after = None;
        loop {
            let page = payments::load_live(&self.services.database, self.logical(), after, REHYDRATION_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id());
            for payment in page {
                let id = payment.id();
                if self.services.registry.is_quarantined(id) || self.services.router.live(id).is_some() {
                    continue;
                }
                let actor = self.services.router.spawn(&self.services, Box::new(payment), myself.get_cell()).await?;
                let _ = actor.cast(Message::Resume);
            }
        }
        self.services.rehydrated.lock().insert(self.index);
        if self.services.is_rehydrated() {
            let PaymentServices { metrics, started, rehydrated_first, .. } = &*self.services;
            rehydrated_first.call_once(|| metrics.rehydrated(started.elapsed()));
        }
        Ok(())
    }

    /// Starts a payment without a live actor and forwards the message to it.
    async fn wake(&self, myself: &Mailbox<ShardMessage>, id: PaymentId, message: Option<Message>, state: &mut State) {
        if self.services.registry.is_quarantined(id) {
            if let Some(message) = message {
                message.refuse(CommandError::Quarantined);
            }
            return;
        }
        let actor = match self.services.router.live(id) {
            Some(actor) => actor,
            None => match self.start(myself, id, |_| true).await {
                Ok(Some(actor)) => actor,
                Ok(None) => {
                    if let Some(message) = message {
                        message.refuse(CommandError::NotFound);
                    }
                    return;
                }
                Err(error) => return self.put_off(id, message, &error.to_string(), state),
            },
        };
        if let Some(message) = message {
            let _ = actor.cast(message);
        }
        // Sent last, so that an ended payment applies the message before it leaves again.
        let _ = actor.cast(Message::Resume);
        state.resumes.remove(&id);
    }

    /// Starts the actor of a payment from its row, if the row exists and satisfies `is_wanted`.
    async fn start(
        &self,
        myself: &Mailbox<ShardMessage>,
        id: PaymentId,
        is_wanted: fn(&Payment) -> bool,
    ) -> Result<Option<Mailbox<Message>>, ActorProcessingErr> {
        let payment = payments::load(&self.services.database, id).await?.filter(is_wanted);
        let Some(payment) = payment else { return Ok(None) };
        self.services.router.spawn(&self.services, Box::new(payment), myself.get_cell()).await.map(Some)
    }

    /// Starts the live payments of a page that have no actor, then continues with the next page. They were committed
    /// after their initiator had given up, or could not be started then.
    async fn sweep(&self, myself: &Mailbox<ShardMessage>, after: Option<PaymentId>, state: &mut State) {
        let PaymentServices { router, metrics, .. } = &*self.services;
        let Services { database, registry, clock, .. } = &**self.services;
        let page = match payments::live_ids(database, self.logical(), after, SWEEP_PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "shard {} could not look for live payments without an actor", self.index);
                return;
            }
        };
        let Some(last) = page.last().copied() else { return };
        let before = clock.real_now::<Timestamp>().as_millis().saturating_sub(UNATTENDED_AFTER_MS);
        for id in page {
            let is_attended =
                router.live(id).is_some() || state.resumes.contains_key(&id) || registry.is_quarantined(id);
            if is_attended || id.made_at().as_millis() > before {
                continue;
            }
            // A payment that ended since the page was read needs no actor.
            match self.start(myself, id, Payment::is_live).await {
                Ok(Some(actor)) => {
                    tracing::warn!(payment.id = %id, "payment {id} was live without an actor; started one");
                    metrics.unattended();
                    let _ = actor.cast(Message::Resume);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(payment.id = %id, %error, "payment {id} is live but cannot be started");
                }
            }
        }
        let _ = myself.cast(ShardMessage::Sweep(Some(last)));
    }

    /// Handles an unreadable row: the message is dropped, but the payment is retried. A sweep repeats the message's
    /// facts, and a waiting caller gets an error.
    fn put_off(&self, id: PaymentId, message: Option<Message>, error: &str, state: &mut State) {
        tracing::warn!(payment.id = %id, %error, "payment {id} could not be started; retrying");
        if let Some(message) = message {
            message.refuse(CommandError::Unavailable(error.to_owned()));
        }
        let at = self.services.clock.real_now::<Timestamp>().plus_secs(RELOAD_PAUSE_SECS);
        state.remind_at(id, Reminder::Resume, at);
    }

    /// Restarts a failed payment within its budget, or quarantines it.
    async fn restart(
        &self,
        myself: &Mailbox<ShardMessage>,
        id: PaymentId,
        cause: Cause,
        reason: &str,
        state: &mut State,
    ) {
        if state.budget.spend(id, Instant::now()).is_none() {
            self.services.registry.give_up(id, cause, reason);
            return;
        }
        self.services.registry.restarted(ActorKind::Payment, &id.to_string(), cause, reason);
        self.wake(myself, id, None, state).await;
    }

    /// Notifies the payments with a deadline that the chain has passed.
    fn pass_deadlines(&self, chain: Chain, block_time: Timestamp, state: &mut State) {
        let Some(waiting) = state.deadlines.get_mut(&chain) else { return };
        while let Some(first) = waiting.first().copied().filter(|(at, _)| *at <= block_time) {
            waiting.remove(&first);
            self.notify_live(first.1, Command::PassDeadline { chain_time: block_time });
        }
    }

    /// Sends a command about the deadline to a payment, unless it has left since: an ended payment need not be started
    /// for it, and a restarting one registers again.
    fn notify_live(&self, id: PaymentId, command: Command) {
        if let Some(actor) = self.services.router.live(id) {
            let _ = actor.cast(Message::Take(Box::new(command)));
        }
    }

    /// Turns the wheel: sends due reminders and drops old failures.
    async fn remind(&self, myself: &Mailbox<ShardMessage>, state: &mut State) {
        let (now, real_now) = (self.services.clock.now(), self.services.clock.real_now());
        let resumed: Vec<_> = state.resumes.extract_if(|_, at| *at <= real_now).map(|(id, _)| id).collect();
        for id in resumed {
            Box::pin(self.wake(myself, id, None, state)).await;
        }
        while let Some(first) = state.retries.first().copied().filter(|(at, _)| *at <= now) {
            state.retries.remove(&first);
            let retry = Command::RetrySettlement { by: Requester::Schedule };
            self.services.router.send(first.1, Message::Take(Box::new(retry)));
        }
        state.budget.forget_old(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_is_scheduled_once_at_the_earliest_requested_time() {
        let (mut state, id, other) = (State::default(), PaymentId::generate(), PaymentId::generate());
        for (id, at) in [(id, 3_000), (id, 2_000), (id, 2_500), (other, 4_000)] {
            state.remind_at(id, Reminder::Resume, Timestamp(at));
        }
        assert_eq!(state.resumes, HashMap::from([(id, Timestamp(2_000)), (other, Timestamp(4_000))]));
        // A settlement scheduled at two times is retried at both.
        for at in [1_000, 2_000, 2_000] {
            state.remind_at(id, Reminder::RetrySettlement, Timestamp(at));
        }
        assert_eq!(state.retries.len(), 2);
    }
}
