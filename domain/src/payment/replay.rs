//! Runs stored transitions through the current rules: shows what each did, and finds those that would come out differently now.

use super::command::Command;
use super::event::Event;
use super::rejection::Rejection;
use super::state::Payment;
use super::{Transition, applied, transition};
use crate::command_error::TransitionError;
use crate::invariants::{self, Violated};
use crate::time::Timestamp;

/// A stored transition of a payment.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTransition {
    /// Version of the payment after it.
    pub version: u32,
    /// Time of the decision.
    pub at: Timestamp,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Command that caused it. `None` for the initiation, and for transitions of versions that did not store it.
    pub command: Option<Command>,
}

/// A transition as the current rules carry it out.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Its stored events, applied: the payment after it, and everything that follows from the events.
    pub transition: Transition,
    /// Result of its command now, if it is not the stored events.
    pub difference: Option<DecisionDifference>,
    /// Invariants of this version that the payment after it violates.
    pub violated: Option<Violated>,
}

/// Result of a stored command by the current rules, where it differs from the stored events.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionDifference {
    /// Other events, or none.
    Decided(Vec<Event>),
    /// The command is rejected.
    Rejected(Rejection),
    /// The payment would violate an invariant.
    Violated(Violated),
}

/// Reason why a history cannot be replayed further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreplayable {
    /// The first event is not the initiation.
    #[error("the history does not begin with the initiation")]
    NoInitiation,
    /// A version is missing.
    #[error("version {expected} is missing: the next is {found}")]
    Gap {
        /// Next version.
        expected: u32,
        /// Version that was found.
        found: u32,
    },
}

/// Decides a stored transition again with its stored time, and applies its stored events. `before` is the payment before it,
/// `None` for the first one.
///
/// # Errors
///
/// The transition does not follow `before`.
pub fn replay(before: Option<Payment>, stored: &StoredTransition) -> Result<Replayed, Unreplayable> {
    let StoredTransition { version, at, events, command } = stored;
    let before = match (before, events.first()) {
        (Some(before), _) => before,
        (None, Some(Event::Initiated { terms, expires_at })) => Payment::new((**terms).clone(), *expires_at),
        (None, _) => return Err(Unreplayable::NoInitiation),
    };
    let expected = before.version.saturating_add(1);
    if *version != expected {
        return Err(Unreplayable::Gap { expected, found: *version });
    }
    let difference = match command.as_ref().map(|command| transition(&before, command, *at)) {
        None => None,
        // Applying its events again would lead to the same.
        Some(Ok(Some(again))) if again.events == *events => {
            return Ok(Replayed { transition: again, difference: None, violated: None });
        }
        Some(Ok(again)) => Some(DecisionDifference::Decided(again.map(|again| again.events).unwrap_or_default())),
        Some(Err(TransitionError::Rejected(rejection))) => Some(DecisionDifference::Rejected(rejection)),
        Some(Err(TransitionError::Violated(violated))) => Some(DecisionDifference::Violated(violated)),
    };
    let transition = applied(before, events.clone(), *at);
    let violated = invariants::check(invariants::INVARIANTS, &transition.payment).err();
    Ok(Replayed { transition, difference, violated })
}
