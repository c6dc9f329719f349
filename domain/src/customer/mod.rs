//! A customer's compliance: what it has agreed to and handed in, whether it is cleared, and what is checked about it.
//!
//! Like the payment's, it is pure: `decide` what a command brings about, `evolve` the state, `missing` for what is still
//! owed. Deliberately absent: names, addresses, ids of people. Whoever stores those says here only that they changed.

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

/// All that one command brings about; it belongs into one database commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The customer afterwards, its version one higher.
    pub customer: Customer,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Decides a command and applies what follows from it. `Ok(None)`: an old or known fact, nothing changes.
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
