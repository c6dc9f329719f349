//! What waits to be written, and which of it may stand in one group.
//!
//! Units that share a key (a payment, an idempotency key, a cursor, a sender's nonces, an operation, a delivery) never
//! stand in one group, and never overtake each other. Nor do those that promise money of one PSP overtake each other; a
//! number of them may stand in one group. What a block has made final is announced to people who wait: it goes
//! in a group of its own, before what nobody waits for. Everything here survives a panic of the task that writes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{OperationChange, Submitted, Unit};

/// Units that one commit writes at most.
pub const GROUP_UNITS_MAX: usize = 256;
/// Places of a group that waiting initiations get even while transitions would fill it, so that what was let in at the
/// door is answered.
pub const GROUP_INITIATIONS_MIN: usize = 16;
/// How long a group waits for the units that usually come with its first.
pub const GROUP_WAIT: Duration = Duration::from_millis(2);
/// How long a group waits for transitions with announcements that were said to come, and for nothing else.
const GROUP_ANNOUNCED_WAIT: Duration = Duration::from_millis(3);
/// A group waits only if the one before it was at least this large: a lone writer is answered at once.
const GROUP_COMPANY_MIN: usize = 4;
/// Units of one PSP in a group that promise money of it: each is a turn of its own at the gate.
const GROUP_PROMISES_OF_PSP_MAX: usize = 32;
/// Transitions (and everything else that is not an initiation) in the queue; more wait in their senders.
pub const TRANSITIONS_QUEUED_MAX: usize = 4_096;
/// Initiations in the queue; more are told that the service is busy.
pub const INITIATIONS_QUEUED_MAX: usize = 1_024;

/// The two queues and what was taken out of them and still waits.
pub(super) struct Queues {
    transitions: Lane,
    initiations: Lane,
    group_before: usize,
    /// Transitions with announcements that were said to come.
    announced: Arc<AtomicUsize>,
}

struct Lane {
    queue: mpsc::Receiver<Submitted>,
    /// Taken out of the queue and not written yet, oldest first; at most a group's worth.
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
        Self { transitions: lane(transitions), initiations: lane(initiations), group_before: 0, announced }
    }

    /// The next group, once there is a unit; empty when the journal is closed (or nobody is left to write to it) and
    /// everything has been taken.
    pub(super) async fn next_group(&mut self, closing: &CancellationToken) -> Vec<Submitted> {
        let mut group = Group::default();
        loop {
            let announced = self.announced.swap(0, Ordering::Relaxed);
            if announced >= GROUP_COMPANY_MIN {
                self.gather_announced(&mut group, announced, closing).await;
                if !group.units.is_empty() {
                    self.group_before = group.units.len();
                    return group.units;
                }
            }
            self.fill(&mut group);
            if !group.units.is_empty() {
                break;
            }
            if !self.arrival(closing).await {
                return Vec::new();
            }
        }
        if self.group_before >= GROUP_COMPANY_MIN {
            let expected = self.group_before.min(GROUP_UNITS_MAX);
            let deadline = Instant::now() + GROUP_WAIT;
            while group.units.len() < expected {
                match tokio::time::timeout_at(deadline, self.arrival(closing)).await {
                    Ok(true) => self.fill(&mut group),
                    Ok(false) | Err(_) => break,
                }
            }
        }
        self.group_before = group.units.len();
        group.units
    }

    /// Fills the group with transitions that announce something, once so many have come or the wait is over; what nobody
    /// waits for is left for the next group. If none comes, the group stays empty.
    async fn gather_announced(&mut self, group: &mut Group, announced: usize, closing: &CancellationToken) {
        let deadline = Instant::now() + GROUP_ANNOUNCED_WAIT;
        let announced = announced.min(GROUP_UNITS_MAX);
        let announces = |unit: &Unit| !unit.announcements().is_empty();
        loop {
            self.transitions.take_ready();
            if self.transitions.waiting.iter().filter(|submitted| announces(&submitted.unit)).count() >= announced {
                break;
            }
            match tokio::time::timeout_at(deadline, self.arrival(closing)).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        if self.transitions.waiting.iter().any(|submitted| announces(&submitted.unit)) {
            self.fill_with(group, |unit| !can_wait(unit));
        }
    }

    /// Waits until a unit has come out of a queue; `false` if none will.
    async fn arrival(&mut self, closing: &CancellationToken) -> bool {
        loop {
            let room = GROUP_UNITS_MAX;
            if !self.transitions.wants_more() && !self.initiations.wants_more() {
                // Nothing more may be taken (or ever comes): what waits has to be written first.
                return false;
            }
            tokio::select! {
                biased;
                () = closing.cancelled(), if !self.transitions.queue.is_closed() || !self.initiations.queue.is_closed() => {
                    // Nothing new gets in; what is in the queues still comes out.
                    self.transitions.queue.close();
                    self.initiations.queue.close();
                }
                taken = self.transitions.take(room), if self.transitions.wants_more() => if taken { return true },
                taken = self.initiations.take(room), if self.initiations.wants_more() => if taken { return true },
            }
        }
    }

    /// Moves what is there, and fits, into the group; transitions first.
    fn fill(&mut self, group: &mut Group) {
        self.fill_with(group, |_| true);
    }

    fn fill_with(&mut self, group: &mut Group, is_wanted: impl Fn(&Unit) -> bool) {
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

    /// Waits for units; `false` once the queue is closed and empty.
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

/// A group in the making. Keys are hashes: two that collide cost a unit one group's delay, nothing else.
#[derive(Default)]
struct Group {
    units: Vec<Submitted>,
    keys: HashSet<u64>,
    /// How many promise money of each PSP.
    promises: HashMap<u64, usize>,
}

impl Group {
    fn take_from(&mut self, waiting: &mut VecDeque<Submitted>, units_max: usize, is_wanted: impl Fn(&Unit) -> bool) {
        // Keys of units that stay behind: nothing may overtake them.
        let mut barred: HashSet<u64> = HashSet::new();
        for _ in 0..waiting.len() {
            let Some(submitted) = waiting.pop_front() else { return };
            let (keys, promise) = (keys(&submitted.unit), promise(&submitted.unit));
            let has_turn = |psp| self.promises.get(psp).is_none_or(|turns| *turns < GROUP_PROMISES_OF_PSP_MAX);
            let fits = self.units.len() < units_max
                && is_wanted(&submitted.unit)
                && !keys.iter().any(|key| self.keys.contains(key))
                && !keys.iter().chain(&promise).any(|key| barred.contains(key))
                && promise.as_ref().is_none_or(has_turn);
            if fits {
                self.keys.extend(keys);
                if let Some(psp) = promise {
                    *self.promises.entry(psp).or_default() += 1;
                }
                self.units.push(submitted);
            } else {
                barred.extend(keys.into_iter().chain(promise));
                waiting.push_back(submitted);
            }
        }
    }
}

/// Whether nobody waits for the unit: neither a caller, nor whoever it would be announced to.
fn can_wait(unit: &Unit) -> bool {
    match unit {
        Unit::Transition(transition) => transition.announcements.is_empty() && transition.idempotency.is_none(),
        Unit::TransfersApplied(_) => true,
        _ => false,
    }
}

/// What a unit has to itself in its group.
fn keys(unit: &Unit) -> Vec<u64> {
    let operation = |id: &str| hashed(&("operation", id));
    let sender = |chain: &str, sender: &str| hashed(&("sender", chain, sender));
    let mut keys = match unit {
        Unit::Initiation(initiation) => vec![hashed(&("payment", &initiation.payment.id))],
        Unit::Transition(transition) => {
            vec![hashed(&("payment", &transition.payment.id))]
        }
        Unit::Sending(change) => vec![hashed(&("payment", &change.sending.id))],
        // A new id is nobody else's.
        Unit::Customer(_) | Unit::TransfersApplied(_) => Vec::new(),
        Unit::ChainBatch(batch) => vec![hashed(&("cursor", &batch.cursor.chain))],
        Unit::Delivery(outcome) => vec![hashed(&("delivery", &outcome.attempt.delivery_id))],
        Unit::Submission(submission) => {
            let mut keys = vec![sender(&submission.chain_tx.chain, &submission.chain_tx.sender)];
            keys.extend(submission.operations.iter().map(|signed| operation(&signed.id)));
            keys
        }
        Unit::Attempt(attempt) => vec![sender(&attempt.chain, &attempt.sender)],
        Unit::Refusal(refusal) => refusal.operations.iter().map(|refused| operation(&refused.id)).collect(),
        Unit::Renumbering(renumbering) => vec![operation(&renumbering.id)],
        Unit::ChainTxOutcome(outcome) => {
            let mut keys = vec![hashed(&("chain_tx", outcome.chain_tx_id))];
            keys.extend(outcome.operations.iter().map(|operation_outcome| operation(&operation_outcome.id)));
            keys
        }
    };
    keys.extend(unit.operations().0.iter().map(OperationChange::id).map(operation));
    if let Some(row) = unit.idempotency() {
        keys.push(hashed(&("idempotency", &row.psp_id, &row.route, &row.key)));
    }
    keys
}

/// Whose money the unit promises: they take turns, in order.
fn promise(unit: &Unit) -> Option<u64> {
    unit.reserve().map(|reserve| hashed(&("balance", &reserve.psp_id)))
}

fn hashed<K: Hash>(key: &K) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
