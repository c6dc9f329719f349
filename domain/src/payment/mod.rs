//! The payment aggregate.
//!
//! - `decide` returns the events of a command.
//! - `evolve` applies an event.
//! - `react` returns the effects to run after the commit.
//! - `resume` returns the effects that are still due after a restart.
//! - `transition` runs all of them for one command.
//! - `replay` runs them again for a stored transition.
//!
//! The events of a command are one commit and one version. Not here: rows, messages, clocks.

mod announce;
mod authorization;
mod command;
mod decide;
mod event;
mod evolve;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod money_out;
mod payer_request;
mod react;
mod rejection;
mod replay;
mod state;
mod status;
mod terms;
mod transfer;

pub use announce::{Announcement, EventName, EventPattern, announced, payload, test_payload};
pub use authorization::{
    AUTHORIZATION_WINDOW_MIN_SECS, AUTHORIZATIONS_MAX, Authorization, AuthorizationEnd, AuthorizationFailure,
    AuthorizationKind, AuthorizationOrder, AuthorizationState,
};
pub use command::{CollectedBlock, Command, OutageId, RefundAsk, RefundOrder, TransferFinality};
pub(crate) use decide::is_judged;
pub use decide::{REMINE_GRACE_SECS, RETRY_FIRST_SECS, RETRY_MAX_SECS, decide};
pub use event::{Alarm, AlarmKind, Effect, Event};
pub(crate) use evolve::derived_labels;
use evolve::{commit, evolve};
pub use money_out::{
    Funds, NewOperation, OperationAction, OperationBody, PayerTerms, Refund, RefundFailure, RefundLimit, RefundState,
    Requester, Settlement, SettlementState, Vault,
};
pub use payer_request::{
    AddressProof, PayerRefunds, PayerRequest, REFUND_NOTE_CHARS_MAX, REFUND_REQUESTS_MAX, REFUND_REQUESTS_OPEN_MAX,
    RefundRequestState,
};
pub use react::{REVIEW_ALARM_SECS, ended_alarms, only_waits, react, resume};
pub use rejection::Rejection;
pub use replay::{DecisionDifference, Replayed, StoredTransition, Unreplayable, replay};
pub use state::{KytSummary, Outage, Payment};
pub use status::{FailureReason, HistoryEntry, Label, Labels, PublicFailure, Reason, Status};
pub use terms::{ChainCandidate, ChainChoice, OfferedChain, OverpaymentPolicy, Purpose, Terms};
pub use transfer::{
    BlockRef, DUST_LISTED_MAX, Decision, LISTED_MAX, MISDIRECTED_LISTED_MAX, ObservedTransfer, PARTS_LISTED_MAX,
    Presence, Transfer, TransferKey, TransferStatus, TransferToken, Verdict, WHOLES_LISTED_MAX,
};

use crate::command_error::TransitionError;
use crate::invariants::{self, Violated};
use crate::ledger::Posting;
use crate::time::Timestamp;

/// Result of one command. Everything except `effects` belongs into one database commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Payment after the command, with the next version.
    pub payment: Payment,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Public events, in order.
    pub announcements: Vec<Announcement>,
    /// Effects to run after the commit.
    pub effects: Vec<Effect>,
    /// Changes to the operation queue.
    pub operations: Vec<NewOperation>,
    /// Ledger postings.
    pub postings: Vec<Posting>,
}

/// Creates a payment: pending, version 1.
///
/// # Errors
///
/// The payment would violate an invariant.
pub fn initiate(terms: Terms, expires_at: Timestamp) -> Result<Transition, Violated> {
    let at = terms.created_at;
    let fresh = Payment::new(terms.clone(), expires_at);
    let events = vec![Event::Initiated { terms: Box::new(terms), expires_at }];
    carry_out(fresh, events, at)
}

/// Decides a command and applies its events. Returns `Ok(None)` if the command is outdated or already known.
///
/// # Errors
///
/// The command is rejected, or the payment would violate an invariant.
pub fn transition(
    payment: &Payment,
    command: &Command,
    now: Timestamp,
) -> Result<Option<Transition>, TransitionError<Rejection>> {
    let events = decide(payment, command, now).map_err(TransitionError::Rejected)?;
    if events.is_empty() {
        return Ok(None);
    }
    carry_out(payment.clone(), events, now).map(Some).map_err(TransitionError::Violated)
}

fn carry_out(before: Payment, events: Vec<Event>, now: Timestamp) -> Result<Transition, Violated> {
    let transition = applied(before, events, now);
    invariants::check(invariants::INVARIANTS, &transition.payment)?;
    Ok(transition)
}

/// Applies events without a check of the invariants.
fn applied(before: Payment, events: Vec<Event>, now: Timestamp) -> Transition {
    let mut payment = before;
    let mut announcements = Vec::new();
    let mut queue = Vec::new();
    let mut posted = Vec::new();
    for event in &events {
        posted.extend(react::postings(&payment, event));
        payment = evolve(payment, event);
        announcements.extend(announce::announcements(&payment, event, now));
        queue.extend(react::operation(&payment, event));
    }
    let payment = commit(payment, now);
    let mut effects: Vec<Effect> = Vec::new();
    for effect in events.iter().flat_map(|event| react(&payment, event)) {
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    effects.extend((!payment.is_live()).then_some(Effect::Passivate));
    Transition { payment, events, announcements, effects, operations: queue, postings: posted }
}

#[cfg(test)]
pub(crate) mod tests;
