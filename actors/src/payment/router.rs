//! The way to payments: straight to the live actor, or through the shard that wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::RwLock;
use payferry_domain::payment::{Command, OutageId, Payment};
use payferry_domain::{Chain, PaymentId, Timestamp};
use ractor::{Actor, ActorCell, ActorId, ActorRef, SpawnErr};

use super::actor::{Message, PaymentActor};
use super::effects::Services;
use super::shard::ShardMessage;
use crate::inbox::PaymentInbox;

/// Logical shards that payment ids fall into.
pub(crate) const LOGICAL_SHARDS: usize = 256;

/// Which payments are live, and which supervisor looks after which. Shared by everything that speaks to payments.
pub(crate) struct Router {
    live: DashMap<PaymentId, ActorRef<Message>>,
    /// A failed actor is known to its supervisor by its cell alone.
    owners: DashMap<ActorId, PaymentId>,
    shards: RwLock<Vec<Option<ActorRef<ShardMessage>>>>,
    spawned: AtomicU64,
}

impl Router {
    /// A router for `shards` supervisors, which must divide [`LOGICAL_SHARDS`].
    pub(crate) fn new(shards: usize) -> Self {
        assert!(shards > 0 && LOGICAL_SHARDS.is_multiple_of(shards), "shards must divide {LOGICAL_SHARDS}");
        Self {
            live: DashMap::new(),
            owners: DashMap::new(),
            shards: RwLock::new(vec![None; shards]),
            spawned: AtomicU64::new(0),
        }
    }

    /// How many supervisors there are.
    pub(crate) fn shards_len(&self) -> usize {
        self.shards.read().len()
    }

    /// The supervisor of a payment's shard, unless it is being restarted.
    pub(crate) fn shard_of(&self, id: PaymentId) -> Option<ActorRef<ShardMessage>> {
        let shards = self.shards.read();
        let width = LOGICAL_SHARDS / shards.len();
        shards[usize::from(id.shard()) / width].clone()
    }

    pub(crate) fn set_shard(&self, index: usize, shard: ActorRef<ShardMessage>) {
        self.shards.write()[index] = Some(shard);
    }

    fn each_shard(&self, message: impl Fn() -> ShardMessage) {
        for shard in self.shards.read().iter().flatten() {
            // A stopped shard is restarted and then reads everything anew.
            let _ = shard.cast(message());
        }
    }

    /// Has every live payment do again what it still owes.
    pub(crate) fn resume_all(&self) {
        self.each_shard(|| ShardMessage::ResumeAll);
    }

    /// Live payments.
    pub(crate) fn live_len(&self) -> usize {
        self.live.len()
    }

    /// Payment actors started since the process began.
    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Ordering::Relaxed)
    }

    /// The live actor of a payment.
    pub(crate) fn live(&self, id: PaymentId) -> Option<ActorRef<Message>> {
        self.live.get(&id).map(|entry| entry.value().clone())
    }

    /// Sends to the live actor, or to the shard, which wakes it.
    pub(crate) fn send(&self, id: PaymentId, message: Message) {
        let message = match self.live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // It has just left: its shard starts another.
                Err(ractor::MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        if let Some(shard) = self.shard_of(id) {
            let _ = shard.cast(ShardMessage::Wake(id, message));
        }
    }

    /// Starts the actor of a payment, its state handed over. If another was there first, that one serves.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        services: &Arc<Services>,
        payment: Payment,
        supervisor: ActorCell,
    ) -> Result<ActorRef<Message>, SpawnErr> {
        let id = payment.id();
        let (actor, _) =
            Actor::spawn_linked(None, PaymentActor::new(services.clone()), Box::new(payment), supervisor).await?;
        let first = match self.live.entry(id) {
            Entry::Occupied(mut entry) if entry.get().get_status() >= ractor::ActorStatus::Draining => {
                entry.insert(actor.clone());
                None
            }
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(entry) => {
                entry.insert(actor.clone());
                None
            }
        };
        if let Some(first) = first {
            actor.stop(None);
            return Ok(first);
        }
        self.owners.insert(actor.get_id(), id);
        self.spawned.fetch_add(1, Ordering::Relaxed);
        Ok(actor)
    }

    /// Takes an actor out of the map, unless another has taken its place. New messages wake the payment again.
    pub(crate) fn leave(&self, id: PaymentId, actor: ActorId) {
        self.live.remove_if(&id, |_, live| live.get_id() == actor);
    }

    /// Forgets an ended actor; answers whose it was.
    pub(crate) fn forget(&self, actor: ActorId) -> Option<PaymentId> {
        let (_, id) = self.owners.remove(&actor)?;
        self.leave(id, actor);
        Some(id)
    }
}

impl PaymentInbox for Router {
    fn tell(&self, payment_id: PaymentId, command: Command) {
        self.send(payment_id, Message::Take(Box::new(command)));
    }

    fn chain_progressed(&self, chain: Chain, block_time: Timestamp) {
        self.each_shard(|| ShardMessage::ChainProgressed(chain, block_time));
    }

    fn chain_stood_still(&self, chain: Chain, outage: u64, from: Timestamp, to: Timestamp) {
        self.each_shard(|| ShardMessage::ChainStoodStill { chain, outage: OutageId(outage), from, to });
    }
}
