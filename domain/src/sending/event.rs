//! What has happened to a sending, in the past tense.

use serde::{Deserialize, Serialize};

use super::state::{FailureReason, Order};
use crate::chain::Hash32;
use crate::payment::{Decision, Verdict};
use crate::time::Timestamp;

/// Something that happened. Serialised as `{"type": "sent", ...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Event {
    /// The order was accepted and its amount reserved.
    Accepted {
        /// What was accepted.
        order: Box<Order>,
    },
    /// The address was screened.
    Screened {
        /// What was said.
        verdict: Box<Verdict>,
    },
    /// The sending is final.
    Sent {
        /// The settler's revision.
        #[serde(default)]
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
        /// When it was recorded.
        at: Timestamp,
    },
    /// It will not be sent, or was taken back by the chain for good; its amount is free again.
    Failed {
        /// The settler's revision, if the failure is its word.
        #[serde(default)]
        revision: u32,
        /// Why.
        reason: FailureReason,
        /// The same in words, for people.
        detail: String,
        /// When it was recorded.
        at: Timestamp,
    },
}

impl Event {
    /// The name as stored, for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Screened { .. } => "screened",
            Self::Sent { .. } => "sent",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether its operation may be queued from now on.
    pub(super) fn clears(&self) -> bool {
        matches!(self, Self::Screened { verdict } if verdict.decision == Decision::Allow)
    }
}
