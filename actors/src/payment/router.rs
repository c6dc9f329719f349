//! Routes messages to payments: to the live actor, or through the shard that starts it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use parking_lot::RwLock;
use payferry_domain::payment::{Outage, Payment};
use payferry_domain::{Chain, CommandError, PaymentId, Timestamp};
use payferry_runtime::observe::Mailbox;
use ractor::{ActorCell, ActorId, ActorProcessingErr, ActorStatus};

use super::PaymentServices;
use super::actor::{Message, PaymentActor};
use super::shard::ShardMessage;
use crate::chain::Watchlist;
use crate::observe::{PaymentLine, read_line_note};

/// Number of logical shards of payment ids.
pub(crate) const LOGICAL_SHARDS: usize = 256;

/// Router to the live payments and their supervisors. Shared by everything that sends messages to payments.
pub(crate) struct Router {
    /// Live actors by supervisor and id, so that the payments of a supervisor can be read in pages.
    live: Vec<RwLock<BTreeMap<PaymentId, Mailbox<Message>>>>,
    /// Payments by actor id: a supervisor knows a failed actor only by its cell.
    owners: DashMap<ActorId, PaymentId>,
    shards: RwLock<Vec<Option<Mailbox<ShardMessage>>>>,
    spawned: AtomicU64,
}

impl Router {
    /// Creates a router for `shards` supervisors. Their number must divide [`LOGICAL_SHARDS`].
    pub(crate) fn new(shards: usize) -> Self {
        assert!(shards > 0 && LOGICAL_SHARDS.is_multiple_of(shards), "shards must divide {LOGICAL_SHARDS}");
        Self {
            live: (0..shards).map(|_| RwLock::default()).collect(),
            owners: DashMap::new(),
            shards: RwLock::new(vec![None; shards]),
            spawned: AtomicU64::new(0),
        }
    }

    /// Number of supervisors.
    pub(crate) fn shards_len(&self) -> usize {
        self.live.len()
    }

    /// Supervisor of a payment's shard, unless it is being restarted.
    pub(crate) fn shard_of(&self, id: PaymentId) -> Option<Mailbox<ShardMessage>> {
        self.shards.read()[self.index_of(id)].clone()
    }

    /// Index of the supervisor of a payment.
    fn index_of(&self, id: PaymentId) -> usize {
        usize::from(id.shard()) * self.live.len() / LOGICAL_SHARDS
    }

    fn live_of(&self, id: PaymentId) -> &RwLock<BTreeMap<PaymentId, Mailbox<Message>>> {
        &self.live[self.index_of(id)]
    }

    /// Registers a shard's supervisor. The payments of the previous one died with it unnoticed, so they are removed and
    /// will be started again.
    pub(crate) fn take_over(&self, index: usize, shard: Mailbox<ShardMessage>) {
        self.replace(index, Some(shard));
    }

    /// Unregisters a shard that died and is not restarted yet: it has no payments meanwhile.
    pub(crate) fn forget_shard(&self, index: usize) {
        self.replace(index, None);
    }

    fn replace(&self, index: usize, shard: Option<Mailbox<ShardMessage>>) {
        self.shards.write()[index] = shard;
        let orphaned = std::mem::take(&mut *self.live[index].write());
        for actor in orphaned.into_values() {
            self.owners.remove(&actor.get_id());
            actor.kill();
        }
    }

    fn each_shard(&self, message: impl Fn() -> ShardMessage) {
        for shard in self.shards.read().iter().flatten() {
            // A stopped shard is restarted and then reads its payments again.
            let _ = shard.cast(message());
        }
    }

    /// Notifies every shard of the progress of a chain's watcher.
    pub(crate) fn chain_progressed(&self, chain: Chain, block_time: Timestamp) {
        self.each_shard(|| ShardMessage::ChainProgressed(chain, block_time));
    }

    /// Notifies every shard of an outage.
    pub(crate) fn chain_stalled(&self, chain: Chain, outage: Outage) {
        self.each_shard(|| ShardMessage::ChainStoodStill { chain, outage });
    }

    /// Asks every live payment to resume its pending effects.
    pub(crate) fn resume_all(&self) {
        self.each_shard(|| ShardMessage::ResumeAll);
    }

    /// Asks every shard to look for live payments without an actor.
    pub(crate) fn sweep(&self) {
        self.each_shard(|| ShardMessage::Sweep(None));
    }

    /// Number of live payments.
    pub(crate) fn live_len(&self) -> usize {
        self.live.iter().map(|live| live.read().len()).sum()
    }

    /// Number of live payments of one supervisor.
    pub(crate) fn live_len_in(&self, index: usize) -> usize {
        self.live.get(index).map_or(0, |live| live.read().len())
    }

    /// Live actors of one supervisor.
    pub(crate) fn live_in(&self, index: usize) -> Vec<Mailbox<Message>> {
        self.live[index].read().values().cloned().collect()
    }

    /// Page of the live payments of one supervisor after `after`, by id.
    pub(crate) fn lines(&self, index: usize, after: Option<PaymentId>, limit: usize) -> Vec<PaymentLine> {
        let Some(live) = self.live.get(index) else { return Vec::new() };
        let live = live.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let line = |(id, actor): (&PaymentId, &Mailbox<Message>)| {
            let registry = actor.actor_metrics();
            let (status, chain, version) = read_line_note(registry.note());
            PaymentLine { id: *id, status, chain, version, mailbox: registry.depth(), since: registry.since().into() }
        };
        live.range((from, Bound::Unbounded)).take(limit).map(line).collect()
    }

    /// Number of payment actors started by this process.
    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Ordering::Relaxed)
    }

    /// Live actor of a payment.
    pub(crate) fn live(&self, id: PaymentId) -> Option<Mailbox<Message>> {
        let live = self.live_of(id).read();
        live.get(&id).filter(|actor| actor.get_status() < ActorStatus::Draining).cloned()
    }

    /// Sends a message to the live actor, or to the shard, which starts one. If neither accepts it, a waiting caller
    /// gets an error.
    pub(crate) fn send(&self, id: PaymentId, message: Message) {
        let message = match self.live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // The actor has just left: its shard starts another one.
                Err(ractor::MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        let untaken = match self.shard_of(id) {
            None => message,
            Some(shard) => match shard.cast(ShardMessage::Wake(id, message)) {
                Err(ractor::MessagingErr::SendErr(ShardMessage::Wake(_, message))) => message,
                Ok(()) | Err(_) => return,
            },
        };
        untaken.refuse(CommandError::Unavailable("the payment's shard is not running; retry later".to_owned()));
    }

    /// Starts the actor of a payment with this state. If another actor is already live, returns that one.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        services: &Arc<PaymentServices>,
        payment: Box<Payment>,
        supervisor: ActorCell,
    ) -> Result<Mailbox<Message>, ActorProcessingErr> {
        let (id, wallet) = (payment.id(), payment.terms.wallet);
        let shard = supervisor.get_id();
        let behaviour = PaymentActor::new(services.clone());
        let actor = services.registry.spawn_unlisted(behaviour, payment, supervisor).await?;
        // Inserted before the actor can be reached: its supervisor must be able to identify it on a failure.
        self.owners.insert(actor.get_id(), id);
        let first = {
            let mut live = self.live_of(id).write();
            let first = live.get(&id).filter(|first| first.get_status() < ActorStatus::Draining).cloned();
            if first.is_none() {
                // Under the lock, like the retirement in `leave_over`: an ended payment may become live again.
                services.chains.watchlist().watch(wallet, id);
                live.insert(id, actor.clone());
            }
            first
        };
        if let Some(first) = first {
            self.forget(actor.get_id());
            actor.stop(None);
            return Ok(first);
        }
        // Checked after the insertion, while `replace` checks for entries after it registers the shard: one of the two
        // sees the other.
        if self.shard_of(id).is_none_or(|current| current.get_id() != shard) {
            self.forget(actor.get_id());
            actor.kill();
            return Err("the shard of the payment was restarted meanwhile".into());
        }
        self.spawned.fetch_add(1, Ordering::Relaxed);
        Ok(actor)
    }

    /// Removes the actor of a payment that is committed as ended, and retires its wallet, unless another actor has
    /// taken its place. New messages start the payment again.
    pub(crate) fn leave_over(&self, payment: &Payment, actor: ActorId, watchlist: &Watchlist) {
        self.leave_and(payment.id(), actor, || watchlist.retire(payment.terms.wallet));
    }

    /// Runs `and` and removes an actor, unless another one has taken its place.
    fn leave_and(&self, id: PaymentId, actor: ActorId, and: impl FnOnce()) {
        let mut live = self.live_of(id).write();
        if live.get(&id).is_some_and(|live| live.get_id() == actor) {
            and();
            live.remove(&id);
        }
    }

    /// Removes an ended actor; returns its payment.
    pub(crate) fn forget(&self, actor: ActorId) -> Option<PaymentId> {
        let (_, id) = self.owners.remove(&actor)?;
        self.leave_and(id, actor, || ());
        Some(id)
    }
}
