//! What can be told a sending, and what follows from it. Facts never fail; a person's decision can.

use super::event::Event;
use super::state::{FailureReason, Sending, SendingStatus};
use crate::chain::Hash32;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

/// Why the sending to a blocked address failed.
const ADDRESS_BLOCKED: &str = "the address is blocked by screening";

/// A command to a sending. All may come repeatedly, late and in any order; what is known changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A screening result about the address, or (with `by_operator`) a person's decision on a review.
    Screen(Verdict),
    /// The sending is mined and final by the tier.
    Complete {
        /// Grows with every outcome that the settler's row records; one that is not newer than the last changes nothing.
        /// Begins at 1.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
    },
    /// It will definitely not be sent, also if it was final before the chain took it back.
    Fail {
        /// As in `Complete`.
        revision: u32,
        /// Why.
        reason: FailureReason,
        /// The same in words, for people.
        detail: String,
    },
}

/// Why a person's decision was refused; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The address does not wait for a decision.
    #[error("the address is not in review")]
    NotInReview,
}

impl Rejection {
    /// The stable name of the refusal.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotInReview => "not_in_review",
        }
    }
}

/// The events that follow from `command` at `now`; empty if the command is old or known.
pub fn decide(sending: &Sending, command: &Command, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    match command {
        Command::Screen(verdict) => screen(sending, verdict, now),
        // Money that has left has left, even if a failure had been reported.
        Command::Complete { revision, tx_hash }
            if sending.revision < *revision && sending.status != SendingStatus::Sent =>
        {
            Ok(vec![Event::Sent { revision: *revision, tx_hash: *tx_hash, at: now }])
        }
        Command::Fail { revision, reason, detail }
            if sending.revision < *revision && sending.status != SendingStatus::Failed =>
        {
            Ok(vec![Event::Failed { revision: *revision, reason: *reason, detail: detail.clone(), at: now }])
        }
        Command::Complete { .. } | Command::Fail { .. } => Ok(Vec::new()),
    }
}

/// `allow` sends it, `block` ends it. A person's word ends a review, and nothing else.
fn screen(sending: &Sending, verdict: &Verdict, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let undecided = sending.is_live() && matches!(sending.decision(), None | Some(Decision::Review));
    if verdict.by_operator && !sending.is_in_review() {
        return Err(Rejection::NotInReview);
    }
    if !undecided || (sending.is_in_review() && verdict.decision == Decision::Review) {
        return Ok(Vec::new());
    }
    let mut events = vec![Event::Screened { verdict: Box::new(verdict.clone()) }];
    if verdict.decision == Decision::Block {
        let (reason, detail) = (FailureReason::AddressBlocked, ADDRESS_BLOCKED.to_owned());
        events.push(Event::Failed { revision: 0, reason, detail, at: now });
    }
    Ok(events)
}
