//! The way to payments: straight to the live actor, or through the shard that wakes it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::{Mutex, RwLock};
use payferry_domain::payment::{Command, Outage, OutageId, Payment};
use payferry_domain::{Chain, PaymentId, Timestamp};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorStatus};

use super::actor::{Message, PaymentActor};
use super::effects::Services;
use super::shard::ShardMessage;
use crate::inbox::PaymentInbox;

/// Logical shards that payment ids fall into.
pub(crate) const LOGICAL_SHARDS: usize = 256;

/// Outages of a chain that are kept for payments that start later.
const OUTAGES_KEPT_MAX: usize = 64;

/// Which payments are live, and which supervisor looks after which. Shared by everything that speaks to payments.
pub(crate) struct Router {
    live: DashMap<PaymentId, ActorRef<Message>>,
    /// A failed actor is known to its supervisor by its cell alone.
    owners: DashMap<ActorId, PaymentId>,
    shards: RwLock<Vec<Option<ActorRef<ShardMessage>>>>,
    spawned: AtomicU64,
    /// The newest outages of each chain: a payment that was not there when they were told hears of them when it is.
    outages: Mutex<HashMap<Chain, VecDeque<Outage>>>,
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
            outages: Mutex::default(),
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

    /// Makes a shard's supervisor known. The payments of the one before it died with it, unseen by anybody: they are
    /// taken out, so that they are started again.
    pub(crate) fn take_over(&self, index: usize, shard: ActorRef<ShardMessage>) {
        let width = {
            let mut shards = self.shards.write();
            shards[index] = Some(shard);
            LOGICAL_SHARDS / shards.len()
        };
        self.live.retain(|id, actor| {
            let stays = usize::from(id.shard()) / width != index;
            if !stays {
                self.owners.remove(&actor.get_id());
                actor.kill();
            }
            stays
        });
    }

    fn each_shard(&self, message: impl Fn() -> ShardMessage) {
        for shard in self.shards.read().iter().flatten() {
            // A stopped shard is restarted and then reads everything anew.
            let _ = shard.cast(message());
        }
    }

    /// Tells a payment the outages that may have moved its deadline and that it does not know.
    pub(crate) fn tell_outages(&self, payment: &Payment) {
        let concerns = |outage: &Outage| {
            outage.to > payment.terms.created_at
                && outage.from < payment.deadline()
                && !payment.outages.contains(outage)
        };
        let outages: Vec<_> = match self.outages.lock().get(&payment.terms.chain) {
            Some(outages) => outages.iter().copied().filter(concerns).collect(),
            None => return,
        };
        for Outage { id, from, to } in outages {
            self.tell(payment.id(), Command::MoveDeadline { outage: id, from, to });
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
        let entry = self.live.get(&id)?;
        (entry.get_status() < ActorStatus::Draining).then(|| entry.value().clone())
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
    ) -> Result<ActorRef<Message>, ActorProcessingErr> {
        let id = payment.id();
        let shard = supervisor.get_id();
        let (actor, _) =
            Actor::spawn_linked(None, PaymentActor::new(services.clone()), Box::new(payment), supervisor).await?;
        // Before anybody can reach it: its supervisor must know whose failure it sees.
        self.owners.insert(actor.get_id(), id);
        let first = match self.live.entry(id) {
            Entry::Occupied(mut entry) if entry.get().get_status() >= ActorStatus::Draining => {
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
            self.forget(actor.get_id());
            actor.stop(None);
            return Ok(first);
        }
        // Looked at after the entry was made, as `take_over` looks for entries after the shard was made known: one of
        // the two sees the other.
        if self.shard_of(id).is_none_or(|current| current.get_id() != shard) {
            self.forget(actor.get_id());
            actor.kill();
            return Err("its shard was restarted meanwhile".into());
        }
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
        let outage = OutageId(outage);
        {
            // Kept before it is told, so that whoever registers meanwhile meets it here or there.
            let mut outages = self.outages.lock();
            let kept = outages.entry(chain).or_default();
            kept.retain(|known| known.id != outage);
            kept.push_back(Outage { id: outage, from, to });
            if kept.len() > OUTAGES_KEPT_MAX {
                kept.pop_front();
            }
        }
        self.each_shard(|| ShardMessage::ChainStoodStill { chain, outage, from, to });
    }
}
