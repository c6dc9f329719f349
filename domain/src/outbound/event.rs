//! Events of an outbound transfer, in the past tense.

use serde::{Deserialize, Serialize};

use super::state::{FailureReason, Order};
use crate::chain::Hash32;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

/// An event of an outbound transfer. Serialised as `{"type": "sent", ...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
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
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Screened { .. } => "screened",
            Self::Sent { .. } => "sent",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns true if the event allows the operation to be queued.
    pub(super) fn clears(&self) -> bool {
        matches!(self, Self::Screened { verdict } if verdict.decision == Decision::Allow)
    }
}
