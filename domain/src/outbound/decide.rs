//! Commands to an outbound transfer, the events that follow, and how they change it. Facts never fail; a decision of a
//! person can be rejected.

use serde::{Deserialize, Serialize};

use super::payload;
use super::state::{FailureReason, Order, OutboundStatus, OutboundTransfer};
use crate::chain::Hash32;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

/// Failure reason of an outbound transfer to a blocked address.
const ADDRESS_BLOCKED: &str = "the address is blocked by screening";

/// A command to an outbound transfer. Commands may arrive repeatedly, late, and in any order; known facts change
/// nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A screening result for the address, or (with `by_operator`) the decision of a person on a review.
    Screen(Verdict),
    /// The outbound transfer is mined, with the required finality.
    Complete {
        /// Incremented with every outcome that the settler's row records. A fact that is not newer than the last
        /// applied revision changes nothing. Starts at 1.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
    },
    /// It will definitely not be sent. Includes outbound transfers that were final before they were orphaned.
    Fail {
        /// As in `Complete`.
        revision: u32,
        /// Reason.
        reason: FailureReason,
        /// Reason, as text.
        detail: String,
    },
}

/// Reason for rejecting a decision of a person. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The address is not waiting for a decision.
    #[error("the address is not in review")]
    NotInReview,
}

impl Rejection {
    /// Stable error code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotInReview => "not_in_review",
        }
    }
}

/// Returns the events that follow from `command` at `now`; empty if the command is outdated or already known.
pub fn decide(outbound: &OutboundTransfer, command: &Command, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    match command {
        Command::Screen(verdict) => screen(outbound, verdict, now),
        // A final transfer overrides an earlier failure report, because the funds have left.
        Command::Complete { revision, tx_hash }
            if outbound.revision < *revision && outbound.status != OutboundStatus::Sent =>
        {
            Ok(vec![Event::Sent { revision: *revision, tx_hash: *tx_hash, at: now }])
        }
        Command::Fail { revision, reason, detail }
            if outbound.revision < *revision && outbound.status != OutboundStatus::Failed =>
        {
            Ok(vec![Event::Failed { revision: *revision, reason: *reason, detail: detail.clone(), at: now }])
        }
        Command::Complete { .. } | Command::Fail { .. } => Ok(Vec::new()),
    }
}

/// Applies a screening result: `allow` sends it, `block` fails it. A decision of a person ends a review, and nothing
/// else.
fn screen(outbound: &OutboundTransfer, verdict: &Verdict, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let undecided = outbound.is_live() && matches!(outbound.decision(), None | Some(Decision::Review));
    if verdict.by_operator && !outbound.is_in_review() {
        return Err(Rejection::NotInReview);
    }
    if !undecided || (outbound.is_in_review() && verdict.decision == Decision::Review) {
        return Ok(Vec::new());
    }
    let mut events = vec![Event::Screened { verdict: Box::new(verdict.clone()) }];
    if verdict.decision == Decision::Block {
        let (reason, detail) = (FailureReason::AddressBlocked, ADDRESS_BLOCKED.to_owned());
        events.push(Event::Failed { revision: 0, reason, detail, at: now });
    }
    Ok(events)
}

/// An event of an outbound transfer. Serialised as `{"type": "sent", ...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case", tag = "type")]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// The order was accepted and its amount reserved.
    Accepted {
        /// Accepted order.
        order: Box<Order>,
    },
    /// The address was screened.
    Screened {
        /// Verdict.
        verdict: Box<Verdict>,
    },
    /// The outbound transfer is final.
    Sent {
        /// Revision of the settler's row.
        #[serde(default)]
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
        /// Time of recording.
        at: Timestamp,
    },
    /// It will not be sent, or was permanently orphaned. Its amount is available again.
    Failed {
        /// Revision of the settler's row, if the settler reported the failure.
        #[serde(default)]
        revision: u32,
        /// Reason.
        reason: FailureReason,
        /// Reason, as text.
        detail: String,
        /// Time of recording.
        at: Timestamp,
    },
}

impl Event {
    /// Name as stored, for logs.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns true if the event allows the operation to be queued.
    pub(super) fn clears(&self) -> bool {
        matches!(self, Self::Screened { verdict } if verdict.decision == Decision::Allow)
    }
}

/// Returns the outbound transfer after the events of one commit at time `at`, with the next version.
pub(super) fn commit(mut outbound: OutboundTransfer, at: Timestamp) -> OutboundTransfer {
    outbound.version += 1;
    outbound.updated_at = at;
    outbound
}

/// Returns the outbound transfer after one event, which is applied literally. The version changes per commit, not per event.
pub(super) fn evolve(mut outbound: OutboundTransfer, event: &Event) -> OutboundTransfer {
    match event {
        Event::Accepted { order } => outbound.order = (**order).clone(),
        Event::Screened { verdict } => outbound.verdict = Some(verdict.clone()),
        Event::Sent { revision, tx_hash, at } => {
            outbound.revision = outbound.revision.max(*revision);
            outbound.status = OutboundStatus::Sent;
            outbound.tx_hash = Some(*tx_hash);
            (outbound.failure_reason, outbound.failure) = (None, None);
            outbound.finished_at = Some(*at);
        }
        Event::Failed { revision, reason, detail, at } => {
            outbound.revision = outbound.revision.max(*revision);
            outbound.status = OutboundStatus::Failed;
            outbound.tx_hash = None;
            (outbound.failure_reason, outbound.failure) = (Some(*reason), Some(detail.clone()));
            outbound.finished_at = Some(*at);
        }
    }
    outbound.sequence += u32::from(payload::announced(&outbound, event).is_some());
    outbound
}
