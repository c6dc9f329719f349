//! Leases: name, epoch and owner. A [`Lease`] exists only after its row was claimed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::RwLock;
use payferry_domain::{Chain, NodeId, PspId};
use strum::{EnumString, IntoEnumIterator, IntoStaticStr};
use tokio::sync::watch;

/// Number of buckets of PSPs, for webhooks.
pub const BUCKETS: u8 = 64;

/// Kind of a lease. The leases of a kind are distributed evenly over the nodes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter, EnumString, IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "snake_case")]
pub enum LeaseKind {
    /// Watcher and settler of a chain.
    Chain,
    /// Payments and outbound transfers of a shard.
    Shard,
    /// Webhooks of the PSPs of a bucket.
    Bucket,
    /// Background work that one node does.
    Job,
}

/// Background work that one node does for all.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter, EnumString, IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "snake_case")]
pub enum Job {
    /// Moves recorded events of customers into the feed.
    Announcer,
    /// Resumes approved actions of operators.
    Approvals,
    /// Chains the entries of the audit log.
    AuditLog,
    /// Identity checks.
    Compliance,
    /// Deletes replaced documents.
    Documents,
    /// Compares postings and balances.
    Ledger,
    /// Deletes old events and deliveries.
    Retention,
    /// Counts payments, and exports gauges that are read from rows.
    Tally,
    /// Compares vaults and the ledger.
    Vaults,
}

/// Name of a lease, such as `shard:17` or `chain:base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// Watcher and settler of a chain.
    Chain(Chain),
    /// Payments and outbound transfers of this shard.
    Shard(u8),
    /// Webhooks of the PSPs of this bucket.
    Bucket(u8),
    /// Background work.
    Job(Job),
}

impl LeaseName {
    /// Names of all leases of a service with these chains.
    pub(crate) fn all(chains: &[Chain]) -> Vec<Self> {
        let chains = chains.iter().map(|chain| Self::Chain(*chain));
        let shards = (0..=u8::MAX).map(Self::Shard);
        let buckets = (0..BUCKETS).map(Self::Bucket);
        chains.chain(shards).chain(buckets).chain(Job::iter().map(Self::Job)).collect()
    }

    /// Kind of the lease.
    pub const fn kind(self) -> LeaseKind {
        match self {
            Self::Chain(_) => LeaseKind::Chain,
            Self::Shard(_) => LeaseKind::Shard,
            Self::Bucket(_) => LeaseKind::Bucket,
            Self::Job(_) => LeaseKind::Job,
        }
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Chain(chain) => write!(f, "{kind}:{chain}"),
            Self::Shard(number) | Self::Bucket(number) => write!(f, "{kind}:{number}"),
            Self::Job(job) => write!(f, "{kind}:{job}"),
        }
    }
}

/// A name that is no lease of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a lease")]
pub struct UnknownLease(String);

impl FromStr for LeaseName {
    type Err = UnknownLease;

    fn from_str(text: &str) -> Result<Self, UnknownLease> {
        let unknown = || UnknownLease(text.to_owned());
        let (kind, value) = text.split_once(':').ok_or_else(unknown)?;
        let name = match kind.parse().map_err(|_| unknown())? {
            LeaseKind::Chain => value.parse().ok().map(Self::Chain),
            LeaseKind::Shard => value.parse().ok().map(Self::Shard),
            LeaseKind::Bucket => value.parse().ok().filter(|bucket| *bucket < BUCKETS).map(Self::Bucket),
            LeaseKind::Job => value.parse().ok().map(Self::Job),
        };
        name.ok_or_else(unknown)
    }
}

/// Bucket of a PSP: from the random part of its id.
pub const fn bucket_of(psp_id: PspId) -> LeaseName {
    LeaseName::Bucket(psp_id.to_bytes()[15] % BUCKETS)
}

/// Proof that this node claimed a lease. A write that needs the owner contains it, and is committed only if the row still
/// has this owner, epoch and time of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease(Arc<Claimed>);

#[derive(Debug, PartialEq, Eq)]
struct Claimed {
    name: LeaseName,
    text: String,
    owner: String,
    epoch: i64,
    changed_at: i64,
}

impl Lease {
    pub(crate) fn claimed(name: LeaseName, owner: NodeId, epoch: i64, changed_at: i64) -> Self {
        Self(Arc::new(Claimed { name, text: name.to_string(), owner: owner.to_string(), epoch, changed_at }))
    }

    /// A lease of `node_test` at epoch 1, for tests that insert its row.
    #[cfg(feature = "fixtures")]
    pub fn fixture(name: LeaseName) -> Self {
        Self(Arc::new(Claimed { name, text: name.to_string(), owner: "node_test".to_owned(), epoch: 1, changed_at: 0 }))
    }

    /// Name.
    pub fn name(&self) -> LeaseName {
        self.0.name
    }

    /// Name as in the row.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// `node_` id of the owner.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// Number of changes of the owner.
    pub fn epoch(&self) -> i64 {
        self.0.epoch
    }

    /// Time of the change, by the clock of the database server. A failover that loses a change may give an epoch
    /// twice, even to one node; the two then differ in this time.
    pub fn changed_at(&self) -> i64 {
        self.0.changed_at
    }
}

/// Leases that this node holds. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Leases(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    by_name: RwLock<BTreeMap<LeaseName, Lease>>,
    changed: watch::Sender<()>,
}

impl Leases {
    /// Runs `work` while this node does the job. The work is dropped when the job goes to another node.
    pub async fn work_on<F: Future>(&self, job: Job, work: impl Fn() -> F) {
        let name = LeaseName::Job(job);
        loop {
            self.until(|leases| leases.holds(name)).await;
            tokio::select! {
                _ = work() => return,
                () = self.until(|leases| !leases.holds(name)) => {}
            }
        }
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let mut changed = self.0.changed.subscribe();
        // The sender exists as long as this value.
        while !is_so(self) && changed.changed().await.is_ok() {}
    }

    /// The lease, if this node holds it.
    pub fn get(&self, name: LeaseName) -> Option<Lease> {
        self.0.by_name.read().get(&name).cloned()
    }

    /// True if this node holds the lease.
    pub fn holds(&self, name: LeaseName) -> bool {
        self.0.by_name.read().contains_key(&name)
    }

    /// True if this node does this job.
    pub fn does(&self, job: Job) -> bool {
        self.holds(LeaseName::Job(job))
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Lease> {
        self.0.by_name.read().values().cloned().collect()
    }

    /// Number of leases of a kind.
    pub fn count(&self, kind: LeaseKind) -> usize {
        self.0.by_name.read().keys().filter(|name| name.kind() == kind).count()
    }

    pub(crate) fn insert(&self, lease: Lease) {
        self.0.by_name.write().insert(lease.name(), lease);
        self.0.changed.send_replace(());
    }

    pub(crate) fn remove(&self, name: LeaseName) -> Option<Lease> {
        let lost = self.0.by_name.write().remove(&name);
        self.0.changed.send_replace(());
        lost
    }
}
