//! Compliance of a customer: accepted terms, stored documents, clearance, and the current check.
//!
//! The module is pure, like the payment aggregate: `decide` returns the events of a command, `evolve` applies them,
//! `missing` returns the items that are still required. Not here: names, addresses, and document numbers of people. The
//! code that stores them reports only that they changed.

mod command;
mod decide;
mod event;
mod evolve;
mod invariants;
mod rejection;
mod state;
#[cfg(test)]
mod tests;
mod words;

pub use command::Command;
pub use decide::{decide, missing};
pub use event::Event;
pub use evolve::evolve;
pub use invariants::{Violation, violations};
pub use rejection::Rejection;
pub use state::{Check, Customer};
pub use words::{CheckPurpose, CustomerKind, DocumentKind, Documents, KycStatus, Missing, Verdict};

use crate::time::Timestamp;

/// Result of one command. All of it belongs into one database commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Customer after the command, with the next version.
    pub customer: Customer,
    /// Events, in order.
    pub events: Vec<Event>,
}

/// Decides a command and applies its events. Returns `Ok(None)` if the command is outdated or already known.
pub fn transition(customer: &Customer, command: &Command, now: Timestamp) -> Result<Option<Transition>, Rejection> {
    let events = decide(customer, command, now)?;
    if events.is_empty() {
        return Ok(None);
    }
    let mut after = events.iter().fold(customer.clone(), evolve);
    after.version += 1;
    let violations = violations(&after);
    debug_assert!(violations.is_empty(), "{violations:?} after {events:?}: {after:?}");
    Ok(Some(Transition { customer: after, events }))
}
