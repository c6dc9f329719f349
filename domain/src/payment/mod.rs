//! The payment aggregate: `decide` says what happens, `evolve` applies it, `react` says what to do then, `resume`
//! what is still owed after a restart, and `transition` is all of them for one command.
//!
//! Deliberately absent: rows, messages and clocks. A command's events are one commit and one version.

mod announce;
mod command;
mod decide;
mod effect;
mod event;
mod evolve;
mod holdings;
mod label;
mod listed;
mod money_out;
mod operations;
mod payload;
mod postings;
mod react;
mod rejection;
mod resume;
mod state;
mod status;
mod terms;
mod transfer;

pub use announce::{Announcement, EventName, announced};
pub use command::{Command, OutageId};
pub(crate) use decide::is_judged;
pub use decide::{REMINE_GRACE_SECS, RETRY_FIRST_SECS, RETRY_MAX_SECS, decide};
pub use effect::{Alarm, Effect};
pub use event::Event;
pub(crate) use evolve::derived_labels;
pub use evolve::{commit, evolve, replay};
pub use label::{Label, Labels};
pub use listed::{DUST_LISTED_MAX, LISTED_MAX, MISDIRECTED_LISTED_MAX, PARTS_LISTED_MAX, WHOLES_LISTED_MAX};
pub use money_out::{
    Funds, NewOperation, OperationAction, OperationBody, Refund, RefundState, Requester, Settlement, SettlementState,
    Vault,
};
pub use payload::{EventPattern, payload, test_payload};
pub use react::{REVIEW_ALARM_SECS, react};
pub use rejection::Rejection;
pub use resume::resume;
pub use state::{KytSummary, Outage, Payment};
pub use status::{FailureReason, HistoryEntry, Reason, Status};
pub use terms::{ChainCandidate, ChainChoice, OverpaymentPolicy, Purpose, Terms};
pub use transfer::{
    BlockRef, Decision, ObservedTransfer, Presence, Transfer, TransferKey, TransferStatus, TransferToken, Verdict,
};

use crate::invariants::{self, Violation};
use crate::ledger::Posting;
use crate::time::Timestamp;

/// All that one command brings about; everything but `effects` belongs into one database commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The payment afterwards, its version one higher.
    pub payment: Payment,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The public events, in order.
    pub announcements: Vec<Announcement>,
    /// What to do after the commit.
    pub effects: Vec<Effect>,
    /// Changes of the operation queue.
    pub operations: Vec<NewOperation>,
    /// What the ledger notes.
    pub postings: Vec<Posting>,
    /// Broken invariants, to be counted and alarmed; always empty in debug builds, which panic.
    pub violations: Vec<Violation>,
}

/// Makes a payment: pending, version 1.
pub fn initiate(terms: Terms, expires_at: Timestamp) -> Transition {
    let at = terms.created_at;
    let fresh = Payment::new(terms.clone(), expires_at);
    let events = vec![Event::Initiated { terms: Box::new(terms), expires_at }];
    carry_out(fresh, events, at)
}

/// What these commits, in order from the first, have posted: by the version that each made. For payments from before there was
/// a ledger. Empty unless the first one begins with `Initiated`.
pub fn replay_postings<'a>(
    commits: impl IntoIterator<Item = (&'a [Event], Timestamp)>,
) -> Vec<(u32, Timestamp, Vec<Posting>)> {
    let mut payment: Option<Payment> = None;
    let mut posted = Vec::new();
    for (events, at) in commits {
        if let (None, Some(Event::Initiated { terms, expires_at })) = (&payment, events.first()) {
            payment = Some(Payment::new((**terms).clone(), *expires_at));
        }
        let Some(mut moved) = payment.take() else { return posted };
        let mut lines = Vec::new();
        for event in events {
            lines.extend(postings::postings(&moved, event));
            moved = evolve(moved, event);
        }
        let moved = commit(moved, &[], at);
        if !lines.is_empty() {
            posted.push((moved.version, at, lines));
        }
        payment = Some(moved);
    }
    posted
}

/// Decides a command and applies what follows from it. `Ok(None)`: an old or known fact, nothing changes.
pub fn transition(payment: &Payment, command: &Command, now: Timestamp) -> Result<Option<Transition>, Rejection> {
    let events = decide(payment, command, now)?;
    Ok((!events.is_empty()).then(|| carry_out(payment.clone(), events, now)))
}

fn carry_out(before: Payment, events: Vec<Event>, now: Timestamp) -> Transition {
    let mut payment = before;
    let mut announcements = Vec::new();
    let mut queue = Vec::new();
    let mut posted = Vec::new();
    for event in &events {
        posted.extend(postings::postings(&payment, event));
        payment = evolve(payment, event);
        announcements.extend(announce::announcements(&payment, event, now));
        queue.extend(operations::operations(&payment, event));
    }
    let payment = commit(payment, &[], now);
    let mut effects: Vec<Effect> = Vec::new();
    for effect in events.iter().flat_map(|event| react(&payment, event)) {
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    effects.extend((!announcements.is_empty()).then_some(Effect::DeliverWebhooks));
    effects.extend((!payment.is_live()).then_some(Effect::Passivate));
    let violations = invariants::check(&payment);
    debug_assert!(violations.is_empty(), "{violations:?} after {events:?}: {payment:?}");
    Transition { payment, events, announcements, effects, operations: queue, postings: posted, violations }
}

#[cfg(test)]
mod tests;
