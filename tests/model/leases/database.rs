//! The database: tables, locks, and the log of a primary, of which a standby has received a part.
//!
//! - A local commit is visible at once. A failover may lose it.
//! - A synchronous commit is logged, waits for the standby, and then becomes visible. It holds its locks meanwhile.
//! - The standby receives commits in the order of the log. A failover loses an end of the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of an owner's period of a lease.
pub type Epoch = u8;

/// A process: its machine, and the number of its start. The id is new at every start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Machine.
    pub machine: u8,
    /// Number of the start.
    pub start: u8,
}

/// A period in which a node holds the lease: the row of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// Owner.
    pub owner: NodeId,
    /// Epoch.
    pub epoch: Epoch,
    /// Time of the change. It serves only to tell changes apart. Two changes that give the same epoch to the same owner
    /// have a failover between them. Therefore the number of failovers serves as the time.
    pub changed_at: u8,
}

/// A lease that a node believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldLease {
    /// Row of the lease when the node gained it.
    pub tenure: Tenure,
    /// Position of the last write then. The node keeps in memory what it has read.
    pub read: u8,
}

/// A committed write that needed the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeasedWrite {
    /// Position among all writes that were ever logged, from 1.
    pub position: u8,
    /// Lease under which its node has decided it.
    pub lease: HeldLease,
    /// Number of failovers before it.
    pub failovers: u8,
}

/// Committed rows. A node's row is `ready` unless it is listed as gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Nodes in state `gone`.
    pub gone: BTreeSet<NodeId>,
    /// Row of the lease.
    pub lease: Tenure,
    /// Writes, in the order of their commits.
    pub writes: Vec<LeasedWrite>,
}

impl Tables {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Expire(node) => drop(self.gone.insert(node)),
            Change::Assign(tenure) => self.lease = tenure,
            Change::Write(write) => self.writes.push(write),
        }
    }

    /// Position of the last write.
    pub fn position(&self) -> u8 {
        self.writes.last().map_or(0, |write| write.position)
    }
}

/// Content of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Expires a node. A local commit.
    Expire(NodeId),
    /// Claims or hands over the lease. A synchronous commit.
    Assign(Tenure),
    /// A fenced write. A synchronous commit.
    Write(LeasedWrite),
}

/// A commit that the primary has logged and the standby has not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Logged {
    /// Content.
    pub change: Change,
    /// True if the primary shows it. False if it waits for the standby.
    pub is_visible: bool,
}

/// A transaction that passed the fence. It holds a share lock on the row of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FencedTxn {
    /// Lease that the fence has compared.
    pub lease: HeldLease,
    /// True if its commit is logged. Then nothing can end it but a crash of the server.
    pub is_logged: bool,
}

/// A primary and its standby.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicatedDatabase {
    /// Rows that clients see.
    pub primary: Tables,
    /// Rows that clients would see after a promotion.
    pub standby: Tables,
    /// Commits that the standby has not received, oldest first.
    pub log: VecDeque<Logged>,
    /// Transactions that passed the fence, by their client.
    pub txns: BTreeMap<NodeId, FencedTxn>,
    /// Writes that were ever logged.
    pub logged_writes: u8,
    /// Failovers so far.
    pub failovers: u8,
}

impl ReplicatedDatabase {
    /// A lease that its owner holds, and no writes.
    pub fn new(lease: Tenure) -> Self {
        let tables = Tables { gone: BTreeSet::new(), lease, writes: Vec::new() };
        Self {
            primary: tables.clone(),
            standby: tables,
            log: VecDeque::new(),
            txns: BTreeMap::new(),
            logged_writes: 0,
            failovers: 0,
        }
    }

    /// The claim or hand-over that is logged and waits for the standby. It locks the row of the lease.
    pub fn unacknowledged_assignment(&self) -> Option<Tenure> {
        self.log.iter().find_map(|logged| match *logged {
            Logged { change: Change::Assign(tenure), is_visible: false } => Some(tenure),
            _ => None,
        })
    }

    /// Commits and shows a change at once, with `synchronous_commit = local`.
    pub fn commit_locally(&mut self, change: Change) {
        self.primary.apply(change);
        self.log.push_back(Logged { change, is_visible: true });
    }

    /// Logs a change, which the standby must receive before it is visible and acknowledged.
    pub fn commit_synchronously(&mut self, change: Change) {
        self.log.push_back(Logged { change, is_visible: false });
    }

    /// Processes a COMMIT: logs the write of a transaction.
    pub fn log_write(&mut self, client: NodeId) {
        let Some(txn) = self.txns.get_mut(&client) else { return };
        txn.is_logged = true;
        self.logged_writes += 1;
        let write = LeasedWrite { position: self.logged_writes, lease: txn.lease, failovers: self.failovers };
        self.commit_synchronously(Change::Write(write));
    }

    /// The standby receives the next commit. A synchronous one is thereby acknowledged and releases its locks.
    pub fn replicate(&mut self) {
        let Some(Logged { change, is_visible }) = self.log.pop_front() else { return };
        self.standby.apply(change);
        if !is_visible {
            self.acknowledge(change);
        }
    }

    fn acknowledge(&mut self, change: Change) {
        self.primary.apply(change);
        if let Change::Write(write) = change {
            self.txns.remove(&write.lease.tenure.owner);
        }
    }

    /// The standby becomes the primary. Commits that it has not received are lost, and every connection ends.
    pub fn fail_over(&mut self) {
        self.primary = self.standby.clone();
        self.log.clear();
        self.txns.clear();
        self.failovers += 1;
    }

    /// The primary crashes and recovers from its log. It then shows commits that its standby has not received.
    pub fn recover(&mut self) {
        let waiting: Vec<_> = self.log.iter().filter(|logged| !logged.is_visible).map(|l| l.change).collect();
        for change in waiting {
            self.acknowledge(change);
        }
        for logged in &mut self.log {
            logged.is_visible = true;
        }
        self.txns.clear();
    }
}
