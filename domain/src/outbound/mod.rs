//! Outbound transfers from the PSP's vault that the PSP requests: payouts to a customer's wallet, and withdrawals to
//! the PSP's own wallet.
//!
//! The module has the same functions as the payment aggregate: `decide`, `evolve`, and `resume`, combined by `accept`
//! and `transition`. The amount is deducted from the balance in the commit that accepts the order, and released in the
//! commit that fails it. Not here: the balance itself, rows, messages, clocks.

mod decide;
mod invariants;
mod payload;
mod state;

pub use decide::{Command, Event, Rejection, decide};
use decide::{commit, evolve};
pub use invariants::INVARIANTS;
pub use payload::{OutboundAnnouncement, payload};
pub use state::{FailureReason, Order, OutboundId, OutboundKind, OutboundStatus, OutboundTransfer};

use serde::Serialize;

use crate::chain::{Address, Chain};
use crate::command_error::TransitionError;
use crate::ids::OperationId;
use crate::invariants::{Violated, check};
use crate::ledger::Posting;
use crate::money::Amount;
use crate::payment::{Decision, REVIEW_ALARM_SECS};
use crate::time::Timestamp;

/// Result of one command. Everything except `effects` belongs into one database commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Outbound transfer after the command, with the next version.
    pub outbound: OutboundTransfer,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Public events, in order.
    pub announcements: Vec<OutboundAnnouncement>,
    /// Effects to run after the commit.
    pub effects: Vec<Effect>,
    /// True if the operation is to be queued.
    pub queues_operation: bool,
    /// Ledger postings.
    pub postings: Vec<Posting>,
}

/// An effect to run after the commit. Every effect is idempotent, and due again after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Screen the address and send `Screen`.
    Screen {
        /// The address.
        to: Address,
        /// Amount.
        amount: Amount,
        /// Chain.
        chain: Chain,
    },
    /// The address is in review: screen it again at intervals, and raise an alarm if it is still in review at
    /// `alarm_at`.
    AwaitReview {
        /// The address.
        to: Address,
        /// Amount.
        amount: Amount,
        /// Chain.
        chain: Chain,
        /// Time of the alarm.
        alarm_at: Timestamp,
    },
    /// Notify the settler that the row of the operation is queued.
    Send {
        /// Id of the operation.
        operation: OperationId,
        /// Chain of the operation.
        chain: Chain,
    },
    /// After a restart: notify the webhook sender that rows may be queued. The commit of an announcement notifies it itself.
    DeliverWebhooks,
    /// The outbound transfer no longer needs an actor; the actor may stop when its mailbox is drained.
    Passivate,
}

/// Accepts an order: pending, version 1, amount reserved.
///
/// # Errors
///
/// The outbound transfer would violate an invariant.
pub fn accept(order: Order) -> Result<Transition, Violated> {
    let at = order.created_at;
    let fresh = OutboundTransfer::new(order.clone());
    carry_out(fresh, vec![Event::Accepted { order: Box::new(order) }], at)
}

/// Decides a command and applies its events. Returns `Ok(None)` if the command is outdated or already known.
///
/// # Errors
///
/// The command is rejected, or the outbound transfer would violate an invariant.
pub fn transition(
    outbound: &OutboundTransfer,
    command: &Command,
    now: Timestamp,
) -> Result<Option<Transition>, TransitionError<Rejection>> {
    let events = decide(outbound, command, now).map_err(TransitionError::Rejected)?;
    if events.is_empty() {
        return Ok(None);
    }
    carry_out(outbound.clone(), events, now).map(Some).map_err(TransitionError::Violated)
}

/// Returns all effects that are still due, computed only from the state.
pub fn resume(outbound: &OutboundTransfer) -> Vec<Effect> {
    let Order { to, amount, asset, .. } = outbound.order;
    let chain = asset.chain;
    let mut effects = Vec::new();
    if outbound.status == OutboundStatus::Pending {
        effects.push(match outbound.verdict.as_deref() {
            None => Effect::Screen { to, amount, chain },
            Some(verdict) if verdict.decision == Decision::Allow => {
                Effect::Send { operation: outbound.order.id.operation(), chain }
            }
            Some(verdict) => {
                let alarm_at = verdict.checked_at.plus_secs(REVIEW_ALARM_SECS);
                Effect::AwaitReview { to, amount, chain, alarm_at }
            }
        });
    }
    if outbound.sequence > 0 {
        effects.push(Effect::DeliverWebhooks);
    }
    if !outbound.is_live() {
        effects.push(Effect::Passivate);
    }
    effects
}

fn carry_out(before: OutboundTransfer, events: Vec<Event>, now: Timestamp) -> Result<Transition, Violated> {
    let mut outbound = before;
    let mut announcements = Vec::new();
    let mut postings = Vec::new();
    for event in &events {
        postings.extend(payload::posting(&outbound, event));
        outbound = evolve(outbound, event);
        announcements.extend(payload::announcement(&outbound, event, now));
    }
    let queues_operation = events.iter().any(Event::clears);
    let outbound = commit(outbound, now);
    check(INVARIANTS, &outbound)?;
    let mut effects = resume(&outbound);
    effects.retain(|effect| *effect != Effect::DeliverWebhooks);
    Ok(Transition { outbound, events, announcements, effects, queues_operation, postings })
}

#[cfg(test)]
mod tests;
