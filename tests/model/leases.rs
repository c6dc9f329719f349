//! Model of the leases of several nodes on one PostgreSQL: claim, expiry, hand-over, fence and failover of one lease.
//!
//! - `database`: tables, locks, and the write-ahead log, of which a standby has received a part
//! - `cluster`: processes, what can happen to them and to the database, and every step
//! - `properties`: what always holds, and situations that must occur
//! - `timing`: heartbeats and expiry in seconds, and when a lease may move
//! - `tests`: scenarios, and protections that are removed to show that the model finds the defects
//!
//! Safety does not depend on time. `cluster` therefore has no clock: a node may be expired at any time, also if it is
//! well, and a message may take any time. `timing` has a clock and no writes. It shows that leases move only if they
//! must, and that they then move in time.
//!
//! One lease is enough, since no rule connects two leases. A process that is cut off from the database is modelled as
//! frozen. Not here: two servers that are both primary. The former primary acknowledges no synchronous commit, because
//! its standby has left. The model assumes that the promoted standby has every acknowledged commit.

mod cluster;
mod database;
mod properties;
mod tests;
mod timing;
