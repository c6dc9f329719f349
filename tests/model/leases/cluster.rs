//! Processes on a replicated database, and everything that can happen next.
//!
//! The model allows more than the service does. A property that holds here therefore holds there.
//!
//! - A node may be expired at any time, and the server may end an idle transaction at any time.
//! - A running node may take no step for any time. A freeze is only a name for that, so most scenarios have none.
//! - A node notices the loss of its lease only when the fence refuses a write, or when it finds its row gone.
//! - A write that was decided under a former lease stays queued in its process.
//! - A node claims and hands over also if its own row is gone.

use stateright::{Model, Property};

use super::database::{Change, FencedTxn, HeldLease, NodeId, ReplicatedDatabase, Tables, Tenure};
use super::properties;

/// Status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessStatus {
    /// Runs.
    Running,
    /// Runs no step, or is cut off from the database.
    Frozen,
    /// Was killed.
    Killed,
    /// Ended, because its row is gone.
    Ended,
}

/// Freeze of a process since it gained its lease. Only `properties` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thaw {
    /// It was not frozen since it gained its lease.
    None,
    /// It was frozen.
    Thawed,
    /// It was frozen, and then the fence refused a write.
    Refused,
}

/// The process of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Number of its start.
    pub start: u8,
    /// Status.
    pub status: ProcessStatus,
    /// Lease that it believes to hold.
    pub held: Option<HeldLease>,
    /// Lease that it has held before. A write that it has decided then is still queued.
    pub former: Option<HeldLease>,
    /// Its freeze.
    pub thaw: Thaw,
}

/// Number of times that each event can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterBudget {
    /// Claims and hand-overs.
    pub assignments: u8,
    /// Expiries.
    pub expiries: u8,
    /// Fenced transactions.
    pub writes: u8,
    /// Freezes.
    pub freezes: u8,
    /// Kills.
    pub kills: u8,
    /// Starts after a kill or an expiry.
    pub restarts: u8,
    /// Promotions of the standby.
    pub failovers: u8,
    /// Crashes of the primary without a promotion.
    pub recoveries: u8,
}

/// Protections of the protocol, each of which the model can remove.
#[derive(Clone, Copy, Debug)]
pub struct Protections {
    /// The fence locks the row until the commit.
    pub fence_locks: bool,
    /// A claim skips a locked row.
    pub claim_skips_locked: bool,
    /// The fence compares the epoch.
    pub fence_compares_epoch: bool,
    /// The fence compares the owner.
    pub fence_compares_owner: bool,
    /// The fence, and a node that reads the row, compare the time of the change.
    pub compares_changed_at: bool,
    /// A node acts on a claim only after its commit is acknowledged.
    pub waits_for_acknowledgement: bool,
}

impl Protections {
    /// The protections of the design.
    pub const DESIGN: Self = Self {
        fence_locks: true,
        claim_skips_locked: true,
        fence_compares_epoch: true,
        fence_compares_owner: true,
        compares_changed_at: true,
        waits_for_acknowledgement: true,
    };
}

/// The model: machines, limits and protections.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Number of machines.
    pub machines: u8,
    /// Limits.
    pub budget: ClusterBudget,
    /// Protections.
    pub protections: Protections,
    /// Situations that must occur, so that the properties are not true for lack of events.
    pub reaches: Vec<ClusterSituation>,
}

/// A named situation.
pub type ClusterSituation = (&'static str, fn(&Cluster, &ClusterState) -> bool);

/// Processes and their database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterState {
    /// Database.
    pub database: ReplicatedDatabase,
    /// Process of each machine.
    pub processes: Vec<Process>,
    /// Events that can still happen.
    pub left: ClusterBudget,
}

/// One step. Faults come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterStep {
    /// A process freezes.
    Freeze(u8),
    /// A frozen process continues.
    Thaw(u8),
    /// A process is killed.
    Kill(u8),
    /// A process starts with a new id.
    Restart(u8),
    /// The standby is promoted.
    FailOver,
    /// The primary crashes and recovers.
    Recover,

    /// The standby receives the next commit.
    Replicate,
    /// The server processes a COMMIT. The client may have frozen or died since it has sent it.
    LogWrite(NodeId),
    /// The server ends an idle transaction.
    EndIdle(NodeId),

    /// A node expires another one.
    Expire(u8, NodeId),
    /// A node claims the lease.
    Claim(u8),
    /// A node hands the lease over to another one.
    HandOver(u8, u8),
    /// A node reads in the row that it owns the lease, and reads the last write.
    Gain(u8),
    /// A heartbeat finds that the node's row is gone: the process ends.
    FindGone(u8),
    /// A node sends the fence of a write, in a new transaction.
    Fence(u8),
    /// A node sends the fence of a write that it has decided under its former lease.
    FenceLate(u8),
}

impl ClusterState {
    /// Id of the process of a machine.
    pub fn node(&self, machine: u8) -> NodeId {
        NodeId { machine, start: self.processes[usize::from(machine)].start }
    }

    fn process_mut(&mut self, machine: u8) -> &mut Process {
        &mut self.processes[usize::from(machine)]
    }

    /// True if this process runs.
    fn is_running(&self, node: NodeId) -> bool {
        let process = self.processes[usize::from(node.machine)];
        process.start == node.start && process.status == ProcessStatus::Running
    }

    /// The lease as a node holds it that gains it now.
    fn gained(&self, tenure: Tenure) -> HeldLease {
        HeldLease { tenure, read: self.database.primary.position() }
    }
}

impl Cluster {
    /// True if another transaction has locked the row of the lease.
    fn is_locked(&self, state: &ClusterState) -> bool {
        let is_shared = self.protections.fence_locks && !state.database.txns.is_empty();
        is_shared || state.database.unacknowledged_assignment().is_some()
    }

    /// True if the owner is gone, and the claim does not skip the row.
    fn may_claim(&self, state: &ClusterState) -> bool {
        let Tables { gone, lease, .. } = &state.database.primary;
        let is_locked = if self.protections.claim_skips_locked {
            self.is_locked(state)
        } else {
            state.database.unacknowledged_assignment().is_some()
        };
        gone.contains(&lease.owner) && !is_locked
    }

    /// True if the fence finds the row that a write needs.
    fn passes_fence(&self, lease: Tenure, write: Tenure) -> bool {
        let Protections { fence_compares_epoch, fence_compares_owner, .. } = self.protections;
        (!fence_compares_epoch || lease.epoch == write.epoch)
            && (!fence_compares_owner || lease.owner == write.owner)
            && lease.changed_at == write.changed_at
    }

    /// Faults of processes and of the database.
    fn faults(state: &ClusterState, steps: &mut Vec<ClusterStep>) {
        let left = state.left;
        for (machine, process) in (0..).zip(&state.processes) {
            match process.status {
                ProcessStatus::Running => {
                    steps.extend((left.freezes > 0).then_some(ClusterStep::Freeze(machine)));
                    steps.extend((left.kills > 0).then_some(ClusterStep::Kill(machine)));
                }
                ProcessStatus::Frozen => steps.push(ClusterStep::Thaw(machine)),
                ProcessStatus::Killed | ProcessStatus::Ended => {
                    steps.extend((left.restarts > 0).then_some(ClusterStep::Restart(machine)));
                }
            }
        }
        steps.extend((left.failovers > 0).then_some(ClusterStep::FailOver));
        steps.extend((left.recoveries > 0).then_some(ClusterStep::Recover));
    }

    /// Steps of the database server.
    fn server_steps(state: &ClusterState, steps: &mut Vec<ClusterStep>) {
        steps.extend((!state.database.log.is_empty()).then_some(ClusterStep::Replicate));
        for (client, _) in state.database.txns.iter().filter(|(_, txn)| !txn.is_logged) {
            steps.extend([ClusterStep::LogWrite(*client), ClusterStep::EndIdle(*client)]);
        }
    }

    /// Steps of a running node.
    fn node_steps(&self, state: &ClusterState, machine: u8, steps: &mut Vec<ClusterStep>) {
        let (node, process) = (state.node(machine), state.processes[usize::from(machine)]);
        let Tables { gone, lease, .. } = &state.database.primary;
        let others = (0..self.machines).filter(|other| *other != machine);

        let owner_of_earlier_start = Some(lease.owner).filter(|owner| owner.start < state.node(owner.machine).start);
        let living = others.clone().map(|other| state.node(other)).chain(owner_of_earlier_start);
        if state.left.expiries > 0 {
            let living = living.filter(|other| !gone.contains(other));
            steps.extend(living.map(|other| ClusterStep::Expire(machine, other)));
        }
        if gone.contains(&node) {
            steps.push(ClusterStep::FindGone(machine));
        }
        if state.left.assignments > 0 {
            steps.extend(self.may_claim(state).then_some(ClusterStep::Claim(machine)));
            if lease.owner == node && !self.is_locked(state) {
                let ready = others.filter(|other| !gone.contains(&state.node(*other)));
                steps.extend(ready.map(|other| ClusterStep::HandOver(machine, other)));
            }
        }

        if lease.owner == node && process.held.is_none_or(|held| held.tenure != *lease) {
            steps.push(ClusterStep::Gain(machine));
        }
        if state.left.writes > 0 && !state.database.txns.contains_key(&node) {
            // The statement waits while an assignment that may change its row is not acknowledged.
            let waits = |held: HeldLease| {
                state.database.unacknowledged_assignment().is_some() && self.passes_fence(*lease, held.tenure)
            };
            steps.extend(process.held.filter(|held| !waits(*held)).map(|_| ClusterStep::Fence(machine)));
            steps.extend(process.former.filter(|held| !waits(*held)).map(|_| ClusterStep::FenceLate(machine)));
        }
    }

    /// Logs a new owner, in the next epoch.
    fn assign(&self, database: &mut ReplicatedDatabase, owner: NodeId) -> Tenure {
        let epoch = database.primary.lease.epoch + 1;
        // A constant time never differs.
        let changed_at = if self.protections.compares_changed_at { database.failovers } else { 0 };
        let tenure = Tenure { owner, epoch, changed_at };
        database.commit_synchronously(Change::Assign(tenure));
        tenure
    }

    /// Fences a write that was decided under this lease. A refusal stops the actor.
    fn fence(&self, state: &mut ClusterState, machine: u8, lease: HeldLease) {
        if self.passes_fence(state.database.primary.lease, lease.tenure) {
            let node = state.node(machine);
            state.left.writes -= 1;
            state.database.txns.insert(node, FencedTxn { lease, is_logged: false });
            return;
        }
        let process = state.process_mut(machine);
        process.held = process.held.filter(|held| *held != lease);
        if process.thaw == Thaw::Thawed {
            process.thaw = Thaw::Refused;
        }
    }
}

impl Process {
    /// Ends. Its transactions end later.
    fn end(&mut self, status: ProcessStatus) {
        *self = Self { status, held: None, former: None, thaw: Thaw::None, ..*self };
    }

    /// Replaces the actor. A write of the former actor is still queued.
    fn hold(&mut self, held: Option<HeldLease>) {
        self.former = self.held.or(self.former);
        self.held = held;
        self.thaw = Thaw::None;
    }
}

impl Model for Cluster {
    type State = ClusterState;
    type Action = ClusterStep;

    /// The first machine holds the lease.
    fn init_states(&self) -> Vec<ClusterState> {
        let tenure = Tenure { owner: NodeId { machine: 0, start: 1 }, epoch: 1, changed_at: 0 };
        let idle = Process { start: 1, status: ProcessStatus::Running, held: None, former: None, thaw: Thaw::None };
        let mut processes = vec![idle; usize::from(self.machines)];
        processes[0].held = Some(HeldLease { tenure, read: 0 });
        vec![ClusterState { database: ReplicatedDatabase::new(tenure), processes, left: self.budget }]
    }

    fn actions(&self, state: &ClusterState, steps: &mut Vec<ClusterStep>) {
        Self::faults(state, steps);
        Self::server_steps(state, steps);
        for machine in (0..self.machines).filter(|machine| state.is_running(state.node(*machine))) {
            self.node_steps(state, machine, steps);
        }
    }

    fn next_state(&self, last: &ClusterState, step: ClusterStep) -> Option<ClusterState> {
        let mut state = last.clone();
        match step {
            ClusterStep::Freeze(machine) => {
                state.left.freezes -= 1;
                state.process_mut(machine).status = ProcessStatus::Frozen;
            }
            ClusterStep::Thaw(machine) => {
                let process = state.process_mut(machine);
                *process = Process { status: ProcessStatus::Running, thaw: Thaw::Thawed, ..*process };
            }
            ClusterStep::Kill(machine) => {
                state.left.kills -= 1;
                state.process_mut(machine).end(ProcessStatus::Killed);
            }
            ClusterStep::Restart(machine) => {
                state.left.restarts -= 1;
                let process = state.process_mut(machine);
                *process = Process { start: process.start + 1, status: ProcessStatus::Running, ..*process };
            }
            ClusterStep::FailOver => {
                state.left.failovers -= 1;
                state.database.fail_over();
            }
            ClusterStep::Recover => {
                state.left.recoveries -= 1;
                state.database.recover();
            }
            ClusterStep::Replicate => state.database.replicate(),
            ClusterStep::LogWrite(client) => state.database.log_write(client),
            ClusterStep::EndIdle(client) => drop(state.database.txns.remove(&client)),
            ClusterStep::Expire(_, other) => {
                state.left.expiries -= 1;
                state.database.commit_locally(Change::Expire(other));
            }
            ClusterStep::Claim(machine) => {
                state.left.assignments -= 1;
                let node = state.node(machine);
                let tenure = self.assign(&mut state.database, node);
                let early = (!self.protections.waits_for_acknowledgement).then(|| state.gained(tenure));
                state.process_mut(machine).hold(early);
            }
            ClusterStep::HandOver(machine, other) => {
                state.left.assignments -= 1;
                let node = state.node(other);
                self.assign(&mut state.database, node);
                state.process_mut(machine).hold(None);
            }
            ClusterStep::Gain(machine) => {
                let gained = state.gained(state.database.primary.lease);
                state.process_mut(machine).hold(Some(gained));
            }
            ClusterStep::FindGone(machine) => state.process_mut(machine).end(ProcessStatus::Ended),
            ClusterStep::Fence(machine) => {
                let held = state.processes[usize::from(machine)].held?;
                self.fence(&mut state, machine, held);
            }
            ClusterStep::FenceLate(machine) => {
                let former = state.process_mut(machine).former.take()?;
                self.fence(&mut state, machine, former);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
