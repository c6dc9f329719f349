//! Observation of the tree: metrics of its actors, quarantined subjects, and payments by status.
//!
//! Metrics of actors are defined in `payferry_runtime::observe`. This module re-exports its public items.

mod actor_subject;
mod buckets;
pub(crate) mod incidents;
mod metrics;
mod quarantine;
mod tally;
mod tree;
mod view;

pub use payferry_runtime::observe::*;

pub use actor_subject::ActorSubject;
pub use buckets::BUCKETS;
pub use incidents::{INCIDENTS_STORED_MAX, stored as stored_incidents};
pub(crate) use metrics::{refresh_database, refresh_waiting};
pub use quarantine::{Quarantinable, Quarantine, QuarantineCounts, QuarantinedSubject};
pub(crate) use tally::Flow;
pub use tally::Tallied;
pub use tree::TreeMetrics;
pub(crate) use view::Note;
pub use view::{OutboundLine, PaymentLine, TreeView};
