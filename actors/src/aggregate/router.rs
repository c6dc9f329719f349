//! Routes messages to aggregates: to the live actor, or through the supervisor that starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use payferry_domain::{Address, Chain, CommandError, PaymentId, PspId, Timestamp};
use payferry_entities::Database;
use payferry_entities::postgres::LATE_COMMIT_MAX;
use payferry_journal::psps::PspDirectory;
use payferry_journal::{Journal, JournalError, JournalWrite};
use payferry_nodes::{LeaseName, Node, Topic};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorResult, Mailbox};
use payferry_runtime::trace::{Span, SpanKind};
use payferry_webhook::WebhookSender;
use ractor::{ActorCell, ActorId, MessagingErr};
use tracing::Instrument;

use super::actor::{AggregateActor, Message, guest};
use super::live::Live;
use super::loading::Loading;
use super::supervisor::SupervisorMessage;
use super::{Aggregate, log_about};
use crate::chains::Chains;
use crate::compliance::{ScreenRequest, Screening};
use crate::observe::{ActorSubject, TreeMetrics};
use crate::pauses::Pauses;

/// Number of logical shards of ids.
const LOGICAL_SHARDS: usize = 256;
/// Attempts to generate an id in a held shard.
const HELD_ID_ATTEMPTS_MAX: usize = 4 * LOGICAL_SHARDS;
/// Time after which a commit with an unknown outcome has ended, plus a margin.
const LATE_COMMIT_SECS: i64 = LATE_COMMIT_MAX.as_secs().cast_signed() + 1;

/// Services that payments and outbound transfers of one tree share: storage, clock, policies, chains, screening and webhooks.
pub(crate) struct Services {
    pub(crate) database: Database,
    pub(crate) journal: Journal,
    pub(crate) node: Node,
    pub(crate) clock: Clock,
    pub(crate) psps: PspDirectory,
    pub(crate) pauses: Pauses,
    pub(crate) registry: TreeMetrics,
    pub(crate) chains: Arc<Chains>,
    /// Set at the start of the actor and at each restart.
    pub(crate) screening: RwLock<Option<Screening>>,
    /// Like `screening`.
    pub(crate) webhooks: RwLock<Option<WebhookSender>>,
}

/// The live aggregates of a kind and their supervisors. Shared by everything that sends messages to them.
#[derive(derive_more::Deref)]
pub(crate) struct Aggregates<A: Aggregate> {
    /// The services that aggregates share with the rest of the tree.
    #[deref(forward)]
    services: Arc<Services>,
    pub(crate) own: A::Own,
    /// This value, for tasks that outlive a call.
    me: Weak<Self>,
    /// By supervisor.
    live: Vec<RwLock<Live<A>>>,
    /// Ids by actor: a supervisor knows a failed actor only by its cell.
    owners: DashMap<ActorId, A::Id>,
    supervisors: RwLock<Vec<Option<Mailbox<SupervisorMessage<A>>>>>,
    /// Supervisors that are running and have started their live aggregates.
    started: Mutex<BTreeSet<usize>>,
    spawned: AtomicU64,
    /// Reads the live aggregates of supervisors that start.
    pub(super) loading: Arc<Loading<A>>,
}

impl<A: Aggregate> Aggregates<A> {
    /// Creates the registry for `supervisors`, none of which runs yet. Their number must divide [`LOGICAL_SHARDS`].
    pub(crate) fn new(services: Arc<Services>, supervisors: usize, own: A::Own) -> Arc<Self> {
        let divides = supervisors > 0 && LOGICAL_SHARDS.is_multiple_of(supervisors);
        assert!(divides, "shards must divide {LOGICAL_SHARDS}");
        Arc::new_cyclic(|me| Self {
            services,
            own,
            me: me.clone(),
            live: (0..supervisors).map(|_| RwLock::default()).collect(),
            owners: DashMap::new(),
            supervisors: RwLock::new(vec![None; supervisors]),
            started: Mutex::default(),
            spawned: AtomicU64::new(0),
            loading: Arc::default(),
        })
    }

    /// True if this node holds the shard of an aggregate: only then may it have an actor here.
    pub(crate) fn holds(&self, id: A::Id) -> bool {
        self.node.leases().holds(LeaseName::Shard(A::shard(id)))
    }

    /// True if this node runs a logical shard of this supervisor.
    pub(super) fn holds_any(&self, index: usize) -> bool {
        self.shards_of(index).any(|shard| self.node.leases().holds(LeaseName::Shard(shard)))
    }

    /// An id in a shard that this node holds, if it holds any.
    pub(crate) fn held_id<I: Copy + Into<A::Id>>(&self, generate: impl Fn() -> I) -> I {
        let mut ids = std::iter::repeat_with(generate).take(HELD_ID_ATTEMPTS_MAX);
        let first = ids.next().expect("at least one attempt");
        if self.holds(first.into()) { first } else { ids.find(|id| self.holds((*id).into())).unwrap_or(first) }
    }

    /// Nudges the node that holds the shard of an aggregate.
    pub(crate) fn touch(&self, id: A::Id) {
        self.node.courier().nudge(Topic::Touched, id.to_string());
    }

    /// Starts the live aggregates of shards that this node got; returns when they have started.
    pub(crate) async fn gain(&self, shards: &BTreeSet<u8>) {
        let supervisors = self.supervisors.read().clone();
        let started = supervisors.into_iter().enumerate().filter_map(|(index, supervisor)| {
            let own: BTreeSet<u8> = self.shards_of(index).filter(|shard| shards.contains(shard)).collect();
            let supervisor = supervisor.filter(|_| !own.is_empty())?;
            Some(async move { ractor::call!(supervisor, |reply| SupervisorMessage::Gain(own, reply)) })
        });
        // A supervisor that fails is restarted, and then starts all its live aggregates.
        futures::future::join_all(started).await;
    }

    /// Ends the actors of shards that this node no longer holds. They finish the messages that they have received.
    pub(crate) fn lose(&self, shards: &BTreeSet<u8>) {
        for live in &self.live {
            let mut live = live.write();
            let is_lost = |id: &A::Id| shards.contains(&A::shard(*id));
            live.waiting.retain(|id, _| !is_lost(id));
            live.retain_deadlines(|id| !is_lost(id));
            let lost: Vec<_> = live.actors.extract_if(.., |id, _| is_lost(id)).collect();
            drop(live);
            for (_, actor) in lost {
                self.owners.remove(&actor.get_id());
                let _ = actor.drain();
            }
        }
        self.each_supervisor(|| SupervisorMessage::Lose);
    }

    /// Supervisor of an aggregate, unless it is being restarted.
    fn supervisor_of(&self, id: A::Id) -> Option<Mailbox<SupervisorMessage<A>>> {
        self.supervisors.read()[self.index_of(id)].clone()
    }

    /// Index of the supervisor of an aggregate.
    fn index_of(&self, id: A::Id) -> usize {
        usize::from(A::shard(id)) * self.live.len() / LOGICAL_SHARDS
    }

    /// Logical shards of a supervisor.
    pub(super) fn shards_of(&self, index: usize) -> RangeInclusive<u8> {
        let width = LOGICAL_SHARDS / self.live.len();
        let shard = |shard: usize| u8::try_from(shard).expect("a logical shard fits a byte");
        shard(index * width)..=shard((index + 1) * width - 1)
    }

    /// Registers a supervisor, or `None` for one that died and is not restarted yet. The aggregates of the previous one
    /// died with it unnoticed, so they are removed and will be started again.
    pub(crate) fn set_supervisor(&self, index: usize, supervisor: Option<Mailbox<SupervisorMessage<A>>>) {
        self.started.lock().remove(&index);
        self.supervisors.write()[index] = supervisor;
        let orphaned = std::mem::take(&mut *self.live[index].write());
        for actor in orphaned.actors.into_values() {
            self.owners.remove(&actor.get_id());
            actor.kill();
        }
    }

    /// Records that a supervisor has started its live aggregates.
    pub(super) fn has_started(&self, index: usize) {
        self.started.lock().insert(index);
        if self.is_started() {
            A::all_started(self);
        }
    }

    /// True if every supervisor is running and has started its live aggregates. A restarted one must start them again.
    pub(crate) fn is_started(&self) -> bool {
        self.started.lock().len() == self.live.len()
    }

    /// Sends a message to every supervisor.
    pub(crate) fn each_supervisor(&self, message: impl Fn() -> SupervisorMessage<A>) {
        for supervisor in self.supervisors.read().iter().flatten() {
            // A stopped supervisor is restarted and then reads its aggregates again.
            let _ = supervisor.cast(message());
        }
    }

    /// Number of live aggregates.
    pub(crate) fn live_len(&self) -> usize {
        self.live.iter().map(|live| live.read().len()).sum()
    }

    /// Number of live aggregates that only wait, and have no actor.
    pub(crate) fn waiting_len(&self) -> usize {
        self.live.iter().map(|live| live.read().waiting.len()).sum()
    }

    /// Number of live aggregates of one supervisor.
    pub(crate) fn live_len_in(&self, index: usize) -> usize {
        self.live.get(index).map_or(0, |live| live.read().len())
    }

    /// Live actors of one supervisor.
    pub(super) fn live_in(&self, index: usize) -> Vec<(A::Id, Mailbox<Message<A>>)> {
        self.live[index].read().actors.iter().map(|(id, actor)| (*id, actor.clone())).collect()
    }

    /// Page of the live aggregates of one supervisor after `after`, by id.
    pub(crate) fn lines(&self, index: usize, after: Option<A::Id>, limit: usize) -> Vec<A::Line> {
        let Some(live) = self.live.get(index) else { return Vec::new() };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (live, range) = (live.read(), (from, Bound::Unbounded));
        let actors = live.actors.range(range).take(limit).map(|(id, actor)| {
            let actor = actor.actor_metrics();
            (*id, A::line(*id, actor.note(), Some(actor)))
        });
        let waiting = live.waiting.range(range).take(limit).map(|(id, note)| (*id, A::line(*id, *note, None)));
        let page: BTreeMap<A::Id, A::Line> = actors.chain(waiting).collect();
        page.into_values().take(limit).collect()
    }

    /// Number of actors started by this process.
    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Ordering::Relaxed)
    }

    /// Live actor of an aggregate.
    pub(crate) fn live(&self, id: A::Id) -> Option<Mailbox<Message<A>>> {
        self.live[self.index_of(id)].read().actor(id)
    }

    /// The supervisor begins to read its live aggregates, or has read them.
    pub(super) fn set_loading(&self, index: usize, is_loading: bool) {
        self.live[index].write().set_loading(is_loading);
    }

    /// True if a row that was read while the supervisor reads its live aggregates is older than what this process knows: the
    /// aggregate has an actor, or had one.
    pub(super) fn is_known(&self, id: A::Id) -> bool {
        self.live[self.index_of(id)].read().is_known(id)
    }

    /// Note of an aggregate that only waits, and has no actor.
    pub(crate) fn waiting(&self, id: A::Id) -> Option<u64> {
        self.live[self.index_of(id)].read().waiting.get(&id).copied()
    }

    /// Records an aggregate that only waits, unless it has an actor.
    pub(super) fn wait(&self, id: A::Id, note: u64) {
        let mut live = self.live[self.index_of(id)].write();
        if live.actor(id).is_none() {
            live.waiting.insert(id, note);
        }
    }

    /// Has the supervisor notify the aggregate when the chain has been read up to this time.
    pub(crate) fn await_deadline(&self, id: A::Id, chain: Chain, at: Timestamp) {
        self.live[self.index_of(id)].write().await_deadline(id, chain, at);
    }

    /// Takes the aggregates of a supervisor whose deadlines a chain has passed at this time.
    pub(super) fn take_passed(&self, index: usize, chain: Chain, block_time: Timestamp) -> Vec<A::Id> {
        self.live[index].write().take_passed(chain, block_time)
    }

    /// Aggregates of a supervisor with a deadline on a chain.
    pub(super) fn with_deadline(&self, index: usize, chain: Chain) -> Vec<A::Id> {
        self.live[index].read().with_deadline(chain)
    }

    /// Removes the actor of an aggregate that only waits, unless another actor has taken its place. New messages start it again.
    /// Returns true if it was removed.
    pub(super) fn rest(&self, aggregate: &A, actor: ActorId) -> bool {
        let id = aggregate.id();
        let mut live = self.live[self.index_of(id)].write();
        let is_mine = live.actors.get(&id).is_some_and(|live| live.get_id() == actor);
        if is_mine {
            live.remove(id);
            live.waiting.insert(id, aggregate.note());
        }
        is_mine
    }

    /// Sends a message to the live actor, or to the supervisor, which starts one. If neither accepts it, a waiting
    /// caller gets an error.
    pub(crate) fn send(&self, id: A::Id, message: Message<A>) {
        if !self.holds(id) {
            return self.send_elsewhere(id, message);
        }
        let message = match self.live(id) {
            None => message,
            Some(actor) => match actor.cast(message) {
                // The actor has just left: its supervisor starts another one.
                Err(MessagingErr::SendErr(message)) => message,
                Ok(()) | Err(_) => return,
            },
        };
        if let Some(SupervisorMessage::Wake(_, message)) = self.to_supervisor(id, SupervisorMessage::Wake(id, message))
        {
            message.refuse(CommandError::Unavailable(A::NOT_RUNNING.to_owned()));
        }
    }

    /// Sends a fact, which is in a row. If another node holds the shard, its follower of the chain finds the row.
    pub(crate) fn send_fact(&self, id: A::Id, command: A::Command) {
        if self.holds(id) {
            self.send(id, Message::fact(command));
        } else {
            self.node.courier().nudge(Topic::Noted, id.to_string());
        }
    }

    /// Handles a message to an aggregate whose shard another node holds: runs the command of a waiting client here (see
    /// [`guest`]), and only nudges the other node otherwise, which reads the facts itself.
    fn send_elsewhere(&self, id: A::Id, message: Message<A>) {
        match message {
            Message::Take(request) if request.reply.is_some() => {
                if let Some(aggregates) = self.me.upgrade() {
                    tokio::spawn(guest(aggregates, id, *request).in_current_span());
                }
            }
            Message::Observe(_) => {}
            _ => self.touch(id),
        }
    }

    /// Sends a message to the supervisor; returns it if there is none. A stopped supervisor is restarted, and then each
    /// of its aggregates requests its timers again.
    pub(crate) fn to_supervisor(&self, id: A::Id, message: SupervisorMessage<A>) -> Option<SupervisorMessage<A>> {
        match self.supervisor_of(id) {
            None => Some(message),
            Some(supervisor) => match supervisor.cast(message) {
                Err(MessagingErr::SendErr(message)) => Some(message),
                Ok(()) | Err(_) => None,
            },
        }
    }

    /// Requests the screening of an address. An address in review is screened again after a pause, and raises an alarm
    /// after `alarm_at`.
    pub(crate) fn screen(&self, request: ScreenRequest, alarm_at: Option<Timestamp>) {
        if let Some(screening) = &*self.screening.read() {
            screening.screen(request, alarm_at);
        }
    }

    /// Nudges the settler of a chain, here or on another node.
    pub(crate) fn nudge_settler(&self, chain: Chain) {
        if self.node.leases().holds(LeaseName::Chain(chain)) {
            self.chains.nudge_settler(chain);
        } else {
            self.node.courier().nudge(Topic::Queued, chain.as_str());
        }
    }

    /// Notifies the webhook sender that deliveries of this PSP are due.
    pub(crate) fn nudge_webhooks(&self, psp_id: PspId) {
        if let Some(webhooks) = &*self.webhooks.read() {
            webhooks.nudge(psp_id);
        }
    }

    /// Commits a new aggregate by this write, starts its actor, and runs its effects. A queued write is executed even if
    /// the caller stops waiting, and then the aggregate needs an actor. `kept` is held that long.
    pub(crate) async fn create(
        self: &Arc<Self>,
        aggregate: A,
        effects: Vec<A::Effect>,
        write: JournalWrite,
        kept: impl Send + 'static,
    ) -> Result<A, JournalError> {
        let (aggregates, aggregate) = (self.clone(), Box::new(aggregate));
        let created = async move {
            aggregates.watch(aggregate.wallet());
            let span = Span::below(aggregate.traceparent(), "journal.commit", SpanKind::Internal);
            let written = aggregates.journal.submit(write).await;
            drop(span);
            match &written {
                Ok(_) => {
                    aggregate.created(&aggregates);
                    if aggregates.holds(aggregate.id()) {
                        aggregates.begin(aggregate.clone(), &effects).await;
                    } else {
                        aggregates.touch(aggregate.id());
                    }
                }
                Err(JournalError::Unknown(_)) => aggregates.begin_if_committed(aggregate.id()),
                Err(_) => {
                    if let Some((wallet, _)) = aggregate.wallet() {
                        aggregates.chains.watchlist().forget(wallet);
                    }
                }
            }
            drop(kept);
            written.map(|_| *aggregate)
        };
        let created = tokio::spawn(created.in_current_span()).await;
        created.unwrap_or_else(|error| Err(JournalError::Unknown(error.to_string())))
    }

    fn watch(&self, wallet: Option<(Address, PaymentId)>) {
        if let Some((wallet, payment_id)) = wallet {
            self.chains.watchlist().watch(wallet, payment_id);
        }
    }

    /// Starts the actor of a committed aggregate and runs its effects. If that fails, its supervisor starts it.
    async fn begin(self: &Arc<Self>, aggregate: Box<A>, effects: &[A::Effect]) {
        let id = aggregate.id();
        let spawned = match self.supervisor_of(id) {
            Some(supervisor) => self.spawn(aggregate.clone(), supervisor.get_cell()).await.map(|_| ()),
            None => Err("there is no supervisor yet".into()),
        };
        match spawned {
            Ok(()) => effects.iter().for_each(|effect| aggregate.execute(self, effect)),
            Err(error) => {
                log_about!(warn, id, "has no actor yet", error);
                self.send(id, Message::Resume);
            }
        }
    }

    /// Starts an aggregate with an unknown commit outcome, if it exists: now, and again when a commit still in progress
    /// has ended.
    fn begin_if_committed(&self, id: A::Id) {
        self.send(id, Message::Resume);
        let at = self.clock.real_now::<Timestamp>().plus_secs(LATE_COMMIT_SECS);
        // If another node holds its shard, the reminder nudges that node again.
        self.to_supervisor(id, SupervisorMessage::Remind(id, at));
    }

    /// Starts the actor of an aggregate with this state. If another actor is already live, returns that one.
    pub(super) async fn spawn(
        self: &Arc<Self>,
        aggregate: Box<A>,
        supervisor: ActorCell,
    ) -> ActorResult<Mailbox<Message<A>>> {
        let (id, wallet, supervisor_id) = (aggregate.id(), aggregate.wallet(), supervisor.get_id());
        let behaviour = AggregateActor { aggregates: self.clone() };
        let actor = self.registry.spawn_unlisted(behaviour, aggregate, supervisor).await?;
        // Inserted before the actor can be reached: its supervisor must be able to identify it on a failure.
        self.owners.insert(actor.get_id(), id);
        let first = {
            let mut live = self.live[self.index_of(id)].write();
            let first = live.actor(id);
            if first.is_none() {
                // Under the lock, like the retirement in `remove_ended`: an ended aggregate may become live again.
                self.watch(wallet);
                live.waiting.remove(&id);
                live.actors.insert(id, actor.clone());
            }
            first
        };
        if let Some(first) = first {
            self.forget(actor.get_id());
            actor.stop(None);
            return Ok(first);
        }
        // Checked after the insertion, while `set_supervisor` checks for entries after it registers the supervisor: one
        // of the two sees the other.
        if self.supervisor_of(id).is_none_or(|current| current.get_id() != supervisor_id) || !self.holds(id) {
            self.forget(actor.get_id());
            actor.kill();
            return Err("the supervisor was restarted meanwhile, or the shard moved to another node".into());
        }
        self.spawned.fetch_add(1, Ordering::Relaxed);
        Ok(actor)
    }

    /// Removes the actor of an aggregate that is committed as ended, and retires its wallet, unless another actor has
    /// taken its place. New messages start it again.
    pub(super) fn remove_ended(&self, aggregate: &A, actor: ActorId) {
        // Later transfers are found by their address in the database.
        self.remove_if_live(aggregate.id(), actor, || {
            aggregate.wallet().into_iter().for_each(|(wallet, _)| self.chains.watchlist().retire(wallet));
        });
    }

    /// Removes an actor, unless another one has taken its place. Calls `first` before that, under the lock.
    fn remove_if_live(&self, id: A::Id, actor: ActorId, first: impl FnOnce()) {
        let mut live = self.live[self.index_of(id)].write();
        if live.actors.get(&id).is_some_and(|live| live.get_id() == actor) {
            first();
            live.remove(id);
        }
    }

    /// Removes an ended actor; returns its aggregate.
    pub(super) fn forget(&self, actor: ActorId) -> Option<A::Id> {
        let (_, id) = self.owners.remove(&actor)?;
        self.remove_if_live(id, actor, || ());
        Some(id)
    }
}
