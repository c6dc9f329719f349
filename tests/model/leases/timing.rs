//! Heartbeats and expiry in seconds: leases move only if they must, and then in time.
//!
//! - In each second, each running node sends one heartbeat, reads the rows of the others, expires, and claims. Nodes do
//!   this in any order, so two successive heartbeats of a node are up to two seconds apart.
//! - A heartbeat fails while the database is unavailable. The node does not repeat it in that second.
//! - The database can be unavailable for any time. Its return may lose heartbeats and expiries.
//! - Monotonic clocks of all nodes run at the same rate, also while a process is frozen.
//!
//! Epochs and writes are left out: `cluster` covers them. The read and the expiry are one step here. In the service, the
//! expiry compares `seen_at` with the value that was read.

use stateright::{Model, Property};

use super::cluster::ProcessStatus;

/// Name of the first property. No lease moves after an outage of the database.
pub const MUST_MOVE: &str = "a lease moves only from a node that was frozen or killed";
/// Name of the second property.
pub const IN_TIME: &str = "a lease moves in time from a node that stopped";

/// Limits, most of them in seconds, and a protection.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// Time without a heartbeat after which a node may be expired.
    pub ttl_secs: u8,
    /// Time after which the server ends an idle transaction.
    pub idle_in_transaction_secs: u8,
    /// Number of successive missed heartbeats with which a node's heartbeats are still steady.
    pub missed_heartbeats_max: u8,
    /// A node expires others only if its own heartbeats were steady for one TTL.
    pub requires_steady_heartbeats: bool,
}

/// Number of times that each event can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimingBudget {
    /// Freezes.
    pub freezes: u8,
    /// Kills.
    pub kills: u8,
    /// Outages of the database.
    pub outages: u8,
}

/// The model: nodes, limits of time, and limits of events.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Number of nodes.
    pub nodes: usize,
    /// Limits of time.
    pub times: LeaseTimes,
    /// Limits of events.
    pub budget: TimingBudget,
    /// Situations that must occur.
    pub reaches: Vec<TimingSituation>,
}

/// A named situation.
pub type TimingSituation = (&'static str, fn(&Timing, &TimingState) -> bool);

/// Row of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// Ready.
    Ready,
    /// Gone. A failover may lose it.
    GoneLocally,
    /// Gone. The standby has it.
    Gone,
}

/// Heartbeats of another node, as the reader knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// True if `seen_at` has changed since the last read.
    pub is_changed: bool,
    /// Time for which it was unchanged, by the reader's clock.
    pub unchanged_secs: u8,
}

/// A node, its row, and its clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedNode {
    /// Status of its process.
    pub status: ProcessStatus,
    /// State of its row.
    pub membership: Membership,
    /// True if it was frozen or killed.
    pub was_stopped: bool,
    /// True if it has done its work in this second.
    pub is_done: bool,
    /// Time since its last heartbeat.
    pub since_heartbeat_secs: u8,
    /// Time for which its heartbeats were steady.
    pub steady_secs: u8,
    /// Its view of each node.
    pub watches: Vec<Watch>,
}

/// A transaction that holds the share lock of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimedTxn {
    /// Client.
    pub node: usize,
    /// Time for which it was idle.
    pub idle_secs: u8,
}

/// Nodes and the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimingState {
    /// Nodes.
    pub nodes: Vec<TimedNode>,
    /// True if the database is available.
    pub is_available: bool,
    /// Time of the current or the last outage.
    pub outage_secs: u8,
    /// Owner of the lease.
    pub owner: usize,
    /// True if it was claimed.
    pub has_moved: bool,
    /// Transaction of a write that needs the lease.
    pub txn: Option<TimedTxn>,
    /// Time since the owner stopped or the database returned, whichever is later.
    pub ownerless_secs: u8,
    /// Events that can still happen.
    pub left: TimingBudget,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimingStep {
    /// A process freezes.
    Freeze(usize),
    /// A frozen process continues.
    Thaw(usize),
    /// A process is killed.
    Kill(usize),
    /// The database becomes unavailable.
    StopDatabase,
    /// The database returns. With `true`, it has lost the commits that its standby had not received.
    ReturnDatabase(bool),
    /// The owner begins a write.
    Begin(usize),
    /// The owner commits it.
    Commit(usize),
    /// A node sends a heartbeat, reads the others, expires, and claims.
    Heartbeat(usize),
    /// A second passes.
    Tick,
}

impl TimingState {
    fn is_running(&self, node: usize) -> bool {
        self.nodes[node].status == ProcessStatus::Running
    }

    fn set_status(&mut self, node: usize, status: ProcessStatus) {
        let node = &mut self.nodes[node];
        node.status = status;
        node.was_stopped |= status != ProcessStatus::Running;
    }
}

impl Timing {
    /// The longest time until a claim: the TTL, and the distance of two heartbeats of the node that claims.
    fn takeover_secs_max(&self) -> u8 {
        self.times.ttl_secs + 2
    }

    /// Time that has passed. Longer times do not differ.
    fn pass(&self, secs: u8) -> u8 {
        (secs + 1).min(self.takeover_secs_max() + 1)
    }

    fn heartbeat(&self, state: &mut TimingState, node: usize) {
        state.nodes[node].is_done = true;
        if !state.is_available {
            return;
        }
        if state.nodes[node].membership != Membership::Ready {
            state.set_status(node, ProcessStatus::Ended);
            return;
        }
        for other in &mut state.nodes {
            other.watches[node].is_changed = true;
        }
        let this = &mut state.nodes[node];
        if this.since_heartbeat_secs > 1 + self.times.missed_heartbeats_max {
            this.steady_secs = 0;
        }
        this.since_heartbeat_secs = 0;
        for watch in this.watches.iter_mut().filter(|watch| watch.is_changed) {
            *watch = Watch { is_changed: false, unchanged_secs: 0 };
        }
        self.expire(state, node);
        if state.nodes[state.owner].membership != Membership::Ready && state.txn.is_none() {
            state.owner = node;
            state.has_moved = true;
            state.ownerless_secs = 0;
            // The claim waits for the standby, which thereby receives all earlier commits.
            for one in state.nodes.iter_mut().filter(|one| one.membership == Membership::GoneLocally) {
                one.membership = Membership::Gone;
            }
        }
    }

    fn expire(&self, state: &mut TimingState, node: usize) {
        let LeaseTimes { ttl_secs, requires_steady_heartbeats, .. } = self.times;
        let this = state.nodes[node].clone();
        if requires_steady_heartbeats && this.steady_secs < ttl_secs {
            return;
        }
        for (other, watch) in state.nodes.iter_mut().zip(this.watches) {
            if other.membership == Membership::Ready && watch.unchanged_secs >= ttl_secs {
                other.membership = Membership::GoneLocally;
            }
        }
    }

    fn tick(&self, state: &mut TimingState) {
        for node in &mut state.nodes {
            node.is_done = false;
            node.since_heartbeat_secs = self.pass(node.since_heartbeat_secs);
            node.steady_secs = self.pass(node.steady_secs);
            for watch in &mut node.watches {
                watch.unchanged_secs = self.pass(watch.unchanged_secs);
            }
        }
        if !state.is_available {
            state.outage_secs = self.pass(state.outage_secs);
        } else if !state.is_running(state.owner) {
            state.ownerless_secs = self.pass(state.ownerless_secs);
        }
        if let Some(txn) = &mut state.txn {
            txn.idle_secs += 1;
        }
        state.txn = state.txn.filter(|txn| txn.idle_secs < self.times.idle_in_transaction_secs);
    }
}

impl Model for Timing {
    type State = TimingState;
    type Action = TimingStep;

    /// The first node holds the lease, and all nodes are steady.
    fn init_states(&self) -> Vec<TimingState> {
        let node = TimedNode {
            status: ProcessStatus::Running,
            membership: Membership::Ready,
            was_stopped: false,
            is_done: false,
            since_heartbeat_secs: 1,
            steady_secs: self.takeover_secs_max() + 1,
            watches: vec![Watch { is_changed: false, unchanged_secs: 1 }; self.nodes],
        };
        vec![TimingState {
            nodes: vec![node; self.nodes],
            is_available: true,
            outage_secs: 0,
            owner: 0,
            has_moved: false,
            txn: None,
            ownerless_secs: 0,
            left: self.budget,
        }]
    }

    fn actions(&self, state: &TimingState, steps: &mut Vec<TimingStep>) {
        let left = state.left;
        for (index, node) in state.nodes.iter().enumerate() {
            match node.status {
                ProcessStatus::Running => {
                    steps.extend((left.freezes > 0).then_some(TimingStep::Freeze(index)));
                    steps.extend((left.kills > 0).then_some(TimingStep::Kill(index)));
                    steps.extend((!node.is_done).then_some(TimingStep::Heartbeat(index)));
                }
                ProcessStatus::Frozen => steps.push(TimingStep::Thaw(index)),
                ProcessStatus::Killed | ProcessStatus::Ended => {}
            }
        }
        if !state.is_available {
            steps.extend([false, true].map(TimingStep::ReturnDatabase));
        } else if left.outages > 0 {
            steps.push(TimingStep::StopDatabase);
        }
        let owner = state.owner;
        match state.txn {
            None if state.is_available && state.is_running(owner) && left.freezes > 0 => {
                steps.push(TimingStep::Begin(owner));
            }
            Some(TimedTxn { node, .. }) if state.is_running(node) => steps.push(TimingStep::Commit(node)),
            _ => {}
        }
        // A running node has a heartbeat in each second, and its transactions are shorter than a second.
        let is_done = state.nodes.iter().all(|node| node.is_done || node.status != ProcessStatus::Running);
        if is_done && state.txn.is_none_or(|txn| !state.is_running(txn.node)) {
            steps.push(TimingStep::Tick);
        }
    }

    fn next_state(&self, last: &TimingState, step: TimingStep) -> Option<TimingState> {
        let mut state = last.clone();
        match step {
            TimingStep::Freeze(node) => {
                state.left.freezes -= 1;
                state.set_status(node, ProcessStatus::Frozen);
            }
            TimingStep::Thaw(node) => {
                state.set_status(node, ProcessStatus::Running);
                if node == state.owner {
                    state.ownerless_secs = 0;
                }
            }
            TimingStep::Kill(node) => {
                state.left.kills -= 1;
                state.set_status(node, ProcessStatus::Killed);
                // The connection ends with the process.
                state.txn = state.txn.filter(|txn| txn.node != node);
            }
            TimingStep::StopDatabase => {
                state.left.outages -= 1;
                (state.is_available, state.outage_secs, state.txn) = (false, 0, None);
            }
            TimingStep::ReturnDatabase(is_promoted) => {
                (state.is_available, state.ownerless_secs) = (true, 0);
                if is_promoted {
                    lose_local_commits(&mut state);
                }
            }
            TimingStep::Begin(node) => state.txn = Some(TimedTxn { node, idle_secs: 0 }),
            TimingStep::Commit(_) => state.txn = None,
            TimingStep::Heartbeat(node) => self.heartbeat(&mut state, node),
            TimingStep::Tick => self.tick(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(MUST_MOVE, |_, state: &TimingState| {
                state.nodes.iter().all(|node| node.was_stopped || node.membership == Membership::Ready)
            }),
            // If no node was well all the time, none may be able to claim.
            Property::always(IN_TIME, |model: &Self, state: &TimingState| {
                let is_any_well = state.nodes.iter().any(|node| !node.was_stopped);
                !is_any_well || state.ownerless_secs <= model.takeover_secs_max()
            }),
        ];
        properties.extend(self.reaches.iter().map(|&(name, condition)| Property::sometimes(name, condition)));
        properties
    }
}

/// Loses the heartbeats that the reader has not read, and the expiries that no claim followed. If a heartbeat was read,
/// its loss changes `seen_at` and delays the expiry. Therefore it is not lost here.
fn lose_local_commits(state: &mut TimingState) {
    for node in &mut state.nodes {
        for watch in &mut node.watches {
            watch.is_changed = false;
        }
        if node.membership == Membership::GoneLocally {
            node.membership = Membership::Ready;
        }
    }
}

/// A lease was claimed.
pub const CLAIMED: TimingSituation = ("a takeover", |_, state| state.has_moved);

/// The database returned after an outage, and nothing was expired for one TTL.
pub const OUTLASTED: TimingSituation = ("an outage longer than the TTL moves no lease", |model, state| {
    let is_long = state.outage_secs > model.times.ttl_secs;
    let is_steady = |node: &TimedNode| node.is_done && node.steady_secs >= model.times.ttl_secs;
    state.is_available && is_long && !state.has_moved && state.nodes.iter().all(is_steady)
});

/// The frozen owner kept its share lock until the server ended its transaction.
pub const LOCKED: TimingSituation = ("a frozen owner holds the share lock", |_, state| {
    state.txn.is_some_and(|txn| txn.idle_secs > 1 && state.nodes[txn.node].status == ProcessStatus::Frozen)
});
