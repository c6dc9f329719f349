//! The waiting writes, and the selection of a group.
//!
//! Writes that share a key (a payment, an idempotency key, a cursor, the nonces of a sender, an operation, a delivery)
//! are never in one group and never overtake each other. Writes that reserve funds of one PSP do not overtake each
//! other either, but several of them can be in one group. Transitions that a new final block causes and that announce
//! events go into a separate group, before writes without waiting callers. All of this survives a panic of the writing
//! task.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{JournalWrite, OperationChange, Submitted};

/// Maximum number of writes in one commit.
pub const GROUP_UNITS_MAX: usize = 256;
/// Places in a group for waiting initiations, even if transitions would fill it, so that accepted requests are
/// answered.
pub const GROUP_INITIATIONS_MIN: usize = 16;
/// Time that a group waits for the writes that usually follow its first one.
pub const GROUP_WAIT: Duration = Duration::from_millis(2);
/// Time that a group waits for expected transitions with announcements, and for no other writes.
const GROUP_ANNOUNCED_WAIT: Duration = Duration::from_millis(3);
/// A group waits only if the previous one had at least this many writes, so that a single writer is served immediately.
const GROUP_COMPANY_MIN: usize = 4;
/// Time that writes without waiting callers wait for others: a commit costs the same for one write and for many.
pub(super) const GROUP_LINGER: Duration = Duration::from_millis(10);
/// Maximum number of writes in a group that reserve funds of the same PSP. Each is a separate statement.
const GROUP_PROMISES_OF_PSP_MAX: usize = 32;
/// Capacity of the queue of transitions (and all other writes except initiations). Further senders wait.
pub const TRANSITIONS_QUEUED_MAX: usize = 4_096;
/// Capacity of the queue of initiations. Further requests are rejected as busy.
pub const INITIATIONS_QUEUED_MAX: usize = 1_024;

/// The two queues, and the writes that were taken from them and still wait.
pub(super) struct Queues {
    transitions: Lane,
    initiations: Lane,
    group_before: usize,
    /// Number of expected transitions with announcements.
    announced: Arc<AtomicUsize>,
    /// Time at which the waiting writes are written, if no caller waits for them.
    linger_until: Option<Instant>,
}

struct Lane {
    queue: mpsc::Receiver<Submitted>,
    /// Taken from the queue and not yet written, oldest first; at most one group.
    waiting: VecDeque<Submitted>,
    open: bool,
}

impl Queues {
    pub(super) fn new(
        transitions: mpsc::Receiver<Submitted>,
        initiations: mpsc::Receiver<Submitted>,
        announced: Arc<AtomicUsize>,
    ) -> Self {
        let lane = |queue| Lane { queue, waiting: VecDeque::new(), open: true };
        Self {
            transitions: lane(transitions),
            initiations: lane(initiations),
            group_before: 0,
            announced,
            linger_until: None,
        }
    }

    /// Returns the next group when there is a write. Returns an empty group when the journal is closed (or all handles
    /// are dropped) and everything was taken.
    pub(super) async fn next_group(&mut self, closing: &CancellationToken) -> Vec<Submitted> {
        let mut group = Group::default();
        loop {
            let announced = self.announced.swap(0, Ordering::Relaxed);
            if announced >= GROUP_COMPANY_MIN {
                self.gather_announced(&mut group, announced, closing).await;
                if !group.writes.is_empty() {
                    self.group_before = group.writes.len();
                    return group.writes;
                }
            }
            if self.lingers(closing).await {
                continue;
            }
            self.fill(&mut group);
            if !group.writes.is_empty() {
                break;
            }
            if !self.arrival(closing).await {
                return Vec::new();
            }
        }
        if self.group_before >= GROUP_COMPANY_MIN {
            let expected = self.group_before.min(GROUP_UNITS_MAX);
            let deadline = Instant::now() + GROUP_WAIT;
            while group.writes.len() < expected {
                match tokio::time::timeout_at(deadline, self.arrival(closing)).await {
                    Ok(true) => self.fill(&mut group),
                    Ok(false) | Err(_) => break,
                }
            }
        }
        self.group_before = group.writes.len();
        group.writes
    }

    /// While only writes without waiting callers wait, waits for another write, but not longer than [`GROUP_LINGER`]. Returns
    /// true if another write has arrived.
    async fn lingers(&mut self, closing: &CancellationToken) -> bool {
        self.transitions.take_ready();
        let waiting = &self.transitions.waiting;
        let is_quiet = waiting.iter().all(|submitted| can_wait(&submitted.write)) && waiting.len() < GROUP_UNITS_MAX;
        if waiting.is_empty() || !is_quiet || !self.initiations.waiting.is_empty() {
            self.linger_until = None;
            return false;
        }
        let until = *self.linger_until.get_or_insert_with(|| Instant::now() + GROUP_LINGER);
        let has_arrived = matches!(tokio::time::timeout_at(until, self.arrival(closing)).await, Ok(true));
        if !has_arrived {
            self.linger_until = None;
        }
        has_arrived
    }

    /// Fills the group with transitions with announcements, when enough have arrived or the wait is over. Writes
    /// without waiting callers are left for the next group. If no such transition arrives, the group stays empty.
    async fn gather_announced(&mut self, group: &mut Group, announced: usize, closing: &CancellationToken) {
        let deadline = Instant::now() + GROUP_ANNOUNCED_WAIT;
        let announced = announced.min(GROUP_UNITS_MAX);
        let announces = |write: &JournalWrite| !write.announcements().is_empty();
        loop {
            self.transitions.take_ready();
            if self.transitions.waiting.iter().filter(|submitted| announces(&submitted.write)).count() >= announced {
                break;
            }
            match tokio::time::timeout_at(deadline, self.arrival(closing)).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        if self.transitions.waiting.iter().any(|submitted| announces(&submitted.write)) {
            self.fill_with(group, |write| !can_wait(write));
        }
    }

    /// Waits until a write has arrived; returns `false` if none can.
    async fn arrival(&mut self, closing: &CancellationToken) -> bool {
        loop {
            let room = GROUP_UNITS_MAX;
            if !self.transitions.wants_more() && !self.initiations.wants_more() {
                // The lanes are full or closed: the waiting writes must be committed first.
                return false;
            }
            tokio::select! {
                biased;
                () = closing.cancelled(), if !self.transitions.queue.is_closed() || !self.initiations.queue.is_closed() => {
                    // Reject new writes; the queued ones can still be taken.
                    self.transitions.queue.close();
                    self.initiations.queue.close();
                }
                taken = self.transitions.take(room), if self.transitions.wants_more() => if taken { return true },
                taken = self.initiations.take(room), if self.initiations.wants_more() => if taken { return true },
            }
        }
    }

    /// Moves waiting writes that fit into the group; transitions first.
    fn fill(&mut self, group: &mut Group) {
        self.fill_with(group, |_| true);
    }

    fn fill_with(&mut self, group: &mut Group, is_wanted: impl Fn(&JournalWrite) -> bool) {
        self.transitions.take_ready();
        self.initiations.take_ready();
        let reserved = self.initiations.waiting.len().min(GROUP_INITIATIONS_MIN);
        group.take_from(&mut self.transitions.waiting, GROUP_UNITS_MAX - reserved, &is_wanted);
        group.take_from(&mut self.initiations.waiting, GROUP_UNITS_MAX, &is_wanted);
    }
}

impl Lane {
    fn wants_more(&self) -> bool {
        self.open && self.waiting.len() < GROUP_UNITS_MAX
    }

    /// Waits for writes; returns `false` when the queue is closed and empty.
    async fn take(&mut self, room: usize) -> bool {
        let mut taken = Vec::new();
        if self.queue.recv_many(&mut taken, room).await == 0 {
            self.open = false;
        }
        self.waiting.extend(taken);
        self.open
    }

    fn take_ready(&mut self) {
        while self.waiting.len() < GROUP_UNITS_MAX {
            let Ok(submitted) = self.queue.try_recv() else { return };
            self.waiting.push_back(submitted);
        }
    }
}

/// A group under construction. Keys are hashes: a collision only delays a write by one group.
#[derive(Default)]
struct Group {
    writes: Vec<Submitted>,
    keys: HashSet<u64>,
    /// Number of reservations per PSP.
    promises: HashMap<u64, usize>,
}

impl Group {
    fn take_from(
        &mut self,
        waiting: &mut VecDeque<Submitted>,
        units_max: usize,
        is_wanted: impl Fn(&JournalWrite) -> bool,
    ) {
        // Keys of writes that stay behind. Nothing may overtake them.
        let mut barred: HashSet<u64> = HashSet::new();
        for _ in 0..waiting.len() {
            let Some(submitted) = waiting.pop_front() else { return };
            let (keys, promise) = (keys(&submitted.write), promise(&submitted.write));
            let has_turn = |psp| self.promises.get(psp).is_none_or(|turns| *turns < GROUP_PROMISES_OF_PSP_MAX);
            let fits = self.writes.len() < units_max
                && is_wanted(&submitted.write)
                && !keys.iter().any(|key| self.keys.contains(key))
                && !keys.iter().chain(&promise).any(|key| barred.contains(key))
                && promise.as_ref().is_none_or(has_turn);
            if fits {
                self.keys.extend(keys);
                if let Some(psp) = promise {
                    *self.promises.entry(psp).or_default() += 1;
                }
                self.writes.push(submitted);
            } else {
                barred.extend(keys.into_iter().chain(promise));
                waiting.push_back(submitted);
            }
        }
    }
}

/// Returns true if neither a caller nor a recipient of an announcement waits for the write.
pub(super) fn can_wait(write: &JournalWrite) -> bool {
    match write {
        JournalWrite::Transition(transition) => {
            !transition.is_urgent && write.announcements().is_empty() && write.idempotency().is_none()
        }
        JournalWrite::TransfersApplied(_) => true,
        JournalWrite::Deliveries(outcomes) => !outcomes.iter().any(|outcome| outcome.is_urgent),
        _ => false,
    }
}

/// Returns the keys that are exclusive to a write in its group.
fn keys(write: &JournalWrite) -> Vec<u64> {
    let operation = |id: &str| hashed(&("operation", id));
    let sender = |chain: &str, sender: &str| hashed(&("sender", chain, sender));
    let mut keys = match write {
        JournalWrite::Initiation(initiation) => vec![hashed(&("payment", &initiation.payment.id))],
        JournalWrite::Transition(transition) => {
            vec![hashed(&("payment", &transition.payment.id))]
        }
        JournalWrite::OutboundTransfer(change) => vec![hashed(&("payment", &change.outbound.id))],
        // A new id cannot conflict.
        JournalWrite::Customer(_) | JournalWrite::Audit(_) | JournalWrite::TransfersApplied(_) => Vec::new(),
        JournalWrite::CustomerEvents(events) => {
            events.iter().map(|new| hashed(&("customer", &new.event.payment_id))).collect()
        }
        JournalWrite::ChainBatch(_, batch) => vec![hashed(&("cursor", &batch.cursor.chain))],
        JournalWrite::Deliveries(outcomes) => {
            outcomes.iter().map(|outcome| hashed(&("delivery", &outcome.attempt.delivery_id))).collect()
        }
        JournalWrite::Submission(_, submission) => {
            let mut keys = vec![sender(&submission.chain_tx.chain, &submission.chain_tx.sender)];
            keys.extend(submission.operations.iter().map(|signed| operation(&signed.id)));
            keys
        }
        JournalWrite::Attempt(_, attempt) => vec![sender(&attempt.chain, &attempt.sender)],
        JournalWrite::Refusal(_, refusal) => refusal.operations.iter().map(|refused| operation(&refused.id)).collect(),
        JournalWrite::ChainTxOutcome(_, outcome) => {
            let mut keys = vec![hashed(&("chain_tx", outcome.chain_tx_id))];
            keys.extend(outcome.operations.iter().map(|operation_outcome| operation(&operation_outcome.id)));
            keys
        }
    };
    keys.extend(write.operations().0.iter().map(OperationChange::id).map(operation));
    if let Some(row) = write.idempotency() {
        keys.push(hashed(&("idempotency", &row.psp_id, &row.route, &row.key)));
    }
    keys
}

/// Returns the key of the PSP whose funds the write reserves. These writes run in order.
fn promise(write: &JournalWrite) -> Option<u64> {
    write.reserve().map(|reserve| hashed(&("balance", &reserve.psp_id)))
}

fn hashed<K: Hash>(key: &K) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
