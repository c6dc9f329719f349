//! Money that leaves the PSP's vault at the PSP's word: a payout to a customer's wallet, or a withdrawal to the PSP's own.
//! The same three functions as a payment: `decide`, `evolve` and `resume`, put together by `accept` and `transition`.
//!
//! The amount is taken off the balance in the commit that accepts the order, and given back in the one that gives it up.
//! Deliberately absent: the balance itself, rows, messages and clocks.

mod decide;
mod event;
mod evolve;
mod ledger;
mod payload;
mod state;

pub use decide::{Command, Rejection, decide};
pub use event::Event;
pub use evolve::{commit, evolve};
pub use payload::{Announcement, payload};
pub use state::{FailureReason, Order, Sending, SendingId, SendingKind, SendingStatus};

use serde::Serialize;

use crate::chain::{Address, Chain};
use crate::ids::OperationId;
use crate::ledger::Posting;
use crate::money::Amount;
use crate::payment::{Decision, REVIEW_ALARM_SECS};
use crate::time::Timestamp;

/// All that one command brings about; everything but `effects` belongs into one database commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The sending afterwards, its version one higher.
    pub sending: Sending,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The public events, in order.
    pub announcements: Vec<Announcement>,
    /// What to do after the commit.
    pub effects: Vec<Effect>,
    /// Whether its operation is to be queued.
    pub queues_operation: bool,
    /// What the ledger notes.
    pub postings: Vec<Posting>,
}

/// Something to do after the commit. Every effect is idempotent, and owed again after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Have the address screened and send `Screen`.
    Screen {
        /// The address.
        to: Address,
        /// How much.
        amount: Amount,
        /// On which chain.
        chain: Chain,
    },
    /// The address is in review: screen it again at intervals, and raise an alarm if it still is by then.
    AwaitReview {
        /// The address.
        to: Address,
        /// How much.
        amount: Amount,
        /// On which chain.
        chain: Chain,
        /// When an alarm is due.
        alarm_at: Timestamp,
    },
    /// Tell the settler that the operation's row waits.
    Send {
        /// Which.
        operation: OperationId,
        /// Whose.
        chain: Chain,
    },
    /// Tell the webhook sender that rows wait.
    DeliverWebhooks,
    /// The actor is needed no more; it may leave once it is drained.
    Passivate,
}

/// Accepts an order: pending, version 1, its amount reserved.
pub fn accept(order: Order) -> Transition {
    let at = order.created_at;
    let fresh = Sending::new(order.clone());
    carry_out(fresh, vec![Event::Accepted { order: Box::new(order) }], at)
}

/// Decides a command and applies what follows from it. `Ok(None)`: an old or known fact, nothing changes.
pub fn transition(sending: &Sending, command: &Command, now: Timestamp) -> Result<Option<Transition>, Rejection> {
    let events = decide(sending, command, now)?;
    Ok((!events.is_empty()).then(|| carry_out(sending.clone(), events, now)))
}

/// Everything still owed, from the state alone.
pub fn resume(sending: &Sending) -> Vec<Effect> {
    let Order { to, amount, asset, .. } = sending.order;
    let chain = asset.chain;
    let mut effects = Vec::new();
    if sending.status == SendingStatus::Pending {
        effects.push(match sending.verdict.as_deref() {
            None => Effect::Screen { to, amount, chain },
            Some(verdict) if verdict.decision == Decision::Allow => {
                Effect::Send { operation: sending.order.id.operation(), chain }
            }
            Some(verdict) => {
                let alarm_at = verdict.checked_at.plus_secs(REVIEW_ALARM_SECS);
                Effect::AwaitReview { to, amount, chain, alarm_at }
            }
        });
    }
    if sending.sequence > 0 {
        effects.push(Effect::DeliverWebhooks);
    }
    if !sending.is_live() {
        effects.push(Effect::Passivate);
    }
    effects
}

fn carry_out(before: Sending, events: Vec<Event>, now: Timestamp) -> Transition {
    let mut sending = before;
    let mut announcements = Vec::new();
    let mut postings = Vec::new();
    for event in &events {
        postings.extend(ledger::posting(&sending, event));
        sending = evolve(sending, event);
        announcements.extend(payload::announcement(&sending, event, now));
    }
    let queues_operation = events.iter().any(Event::clears);
    let sending = commit(sending, now);
    let mut effects = resume(&sending);
    if announcements.is_empty() {
        effects.retain(|effect| *effect != Effect::DeliverWebhooks);
    }
    Transition { sending, events, announcements, effects, queues_operation, postings }
}

#[cfg(test)]
mod tests;
