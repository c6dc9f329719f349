//! What the tree shows of itself: the books of its actors, what is quarantined, and payments by status.
//!
//! The bookkeeping of actors is `payferry_runtime::observe`, whose public items this module has as well.

mod actor_subject;
mod buckets;
mod metrics;
mod quarantine;
mod tally;
mod tree;
mod view;

pub use payferry_runtime::observe::*;

pub use actor_subject::ActorSubject;
pub use buckets::BUCKETS;
pub use quarantine::{Quarantine, QuarantinedSubject};
pub use tally::Tallied;
pub use tree::TreeBooks;
pub use view::{OutboundLine, PaymentLine, TreeView};
pub(crate) use view::{line_note, outbound_note, read_line_note, read_outbound_note};
