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
mod label;
mod money_out;
mod react;
mod rejection;
mod resume;
mod state;
mod status;
mod terms;
mod transfer;

pub use announce::{Announcement, EventName, announced};
pub use command::{Command, OutageId};
pub use decide::decide;
pub use effect::{Alarm, Effect};
pub use event::Event;
pub use evolve::{commit, evolve};
pub use label::{Label, Labels};
pub use money_out::{
    Funds, NewOperation, OperationAction, OperationBody, Refund, RefundState, Requester, Settlement, SettlementState,
    Vault,
};
pub use react::react;
pub use rejection::Rejection;
pub use resume::resume;
pub use state::{KytSummary, Outage, Payment};
pub use status::{FailureReason, HistoryEntry, Reason, Status};
pub use terms::{ChainCandidate, ChainChoice, OverpaymentPolicy, Terms};
pub use transfer::{
    BlockRef, Decision, ObservedTransfer, Presence, Transfer, TransferKey, TransferStatus, TransferToken, Verdict,
};

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
}

/// Makes a payment: pending, version 1.
pub fn initiate(terms: Terms, expires_at: Timestamp) -> Transition {
    let at = terms.created_at;
    let fresh = Payment::new(terms.clone(), expires_at);
    let events = vec![Event::Initiated { terms: Box::new(terms), expires_at }];
    carry_out(fresh, events, at)
}

/// Decides a command and applies what follows from it. `Ok(None)`: an old or known fact, nothing changes.
pub fn transition(payment: &Payment, command: &Command, now: Timestamp) -> Result<Option<Transition>, Rejection> {
    let events = decide(payment, command, now)?;
    Ok((!events.is_empty()).then(|| carry_out(payment.clone(), events, now)))
}

fn carry_out(before: Payment, events: Vec<Event>, now: Timestamp) -> Transition {
    let payment = commit(before, &events, now);
    Transition { payment, events, announcements: Vec::new(), effects: Vec::new(), operations: Vec::new() }
}
