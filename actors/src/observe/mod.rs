//! What the tree shows of itself: the books of its actors, what is quarantined, and payments by status.
//!
//! The bookkeeping of actors is `payferry_runtime::observe`, whose public items this module has as well.

mod buckets;
mod ferried;
mod metrics;
mod quarantine;
mod tally;
mod tree;
mod view;

pub use payferry_runtime::observe::*;

pub use buckets::BUCKETS;
pub use ferried::Ferried;
pub use quarantine::{GivenUp, Quarantine};
pub use tally::Tallied;
pub use tree::TreeBooks;
pub use view::{PaymentLine, SendingLine, TreeView};
pub(crate) use view::{line_note, read_line_note, read_sending_note, sending_note};
