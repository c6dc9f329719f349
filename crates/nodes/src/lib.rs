//! Nodes that share one database: membership (`membership`, `heartbeat`), leases (`lease`, `follow`), and the courier.
//!
//! A lease says which node does a part of the work. Safety never depends on a clock: a write that needs an owner proves the
//! ownership inside its own transaction (the fence of the journal). Expiry only says when another node may take over. A
//! service that runs alone, on SQLite or PostgreSQL, holds every lease from its start and has no heartbeats.
//!
//! Not here: the work itself, and the fence.

mod courier;
mod follow;
mod heartbeat;
mod lease;
mod membership;
mod metrics;
mod statements;
#[cfg(test)]
mod tests;

pub use courier::{Courier, Nudge, Received, Topic};
pub use follow::LeaseHolder;
pub use heartbeat::{LEASE_TTL, Member, NodeState};
pub use lease::{BUCKETS, Job, Lease, LeaseKind, LeaseName, Leases, bucket_of};
pub use membership::{JoinError, LostNode, Node, NodeConfig};
pub use metrics::describe;
