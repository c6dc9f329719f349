//! What has happened to a payment, in the past tense. The events of one command are one commit and one version.

use serde::{Deserialize, Serialize};

use super::command::OutageId;
use super::label::Labels;
use super::money_out::{Refund, Requester};
use super::status::Reason;
use super::terms::Terms;
use super::transfer::{Transfer, TransferKey, Verdict};
use crate::chain::Hash32;
use crate::ids::RefundId;
use crate::money::Amount;
use crate::time::Timestamp;

/// Something that happened to a payment. Serialised as `{"type": "confirmed", ...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Event {
    /// The payment was made.
    Initiated {
        /// What was agreed.
        terms: Box<Terms>,
        /// Until when it can be paid.
        expires_at: Timestamp,
    },
    /// A transfer was seen for the first time, re-mined or orphaned: its entry from now on.
    TransferRecorded {
        /// The whole entry; one with the same key is replaced.
        transfer: Box<Transfer>,
        /// How long an in-time transfer that was orphaned is waited for, if this fact begins such a wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remine_until: Option<Timestamp>,
    },
    /// A transfer is final by its tier.
    TransferFinalised {
        /// Which.
        key: TransferKey,
    },
    /// A transfer was screened.
    TransferScreened {
        /// Which.
        key: TransferKey,
        /// What was said.
        verdict: Box<Verdict>,
    },
    /// A transfer became part of what was received.
    TransferCounted {
        /// Which.
        key: TransferKey,
        /// Whether the settled amount had been frozen before.
        excess: bool,
        /// When.
        at: Timestamp,
    },
    /// Money that counted was taken back by the chain.
    Reorged {
        /// Which transfer.
        key: TransferKey,
        /// Whether the payment goes back to pending.
        reopened: bool,
        /// When.
        at: Timestamp,
    },
    /// The deadline is past, by the chain's time.
    DeadlinePassed {
        /// The timestamp of the block that showed it.
        chain_time: Timestamp,
    },
    /// The deadline moved on by the length of an outage.
    DeadlineMoved {
        /// Which outage.
        outage: OutageId,
        /// From.
        from: Timestamp,
        /// To.
        to: Timestamp,
        /// The new deadline.
        expires_at: Timestamp,
        /// When it was decided.
        at: Timestamp,
    },
    /// The payment is confirmed and its settled amount frozen.
    Confirmed {
        /// What is settled.
        amount: Amount,
        /// The PSP's share.
        psp_amount: Amount,
        /// The treasury's share.
        treasury_fee: Amount,
        /// The labels that are not derived from the rest, from now on.
        labels: Labels,
        /// Why.
        reason: Reason,
        /// When.
        at: Timestamp,
    },
    /// The payment is, or stays, mismatched.
    Mismatched {
        /// The labels that are not derived from the rest, from now on.
        labels: Labels,
        /// Why.
        reason: Reason,
        /// When.
        at: Timestamp,
    },
    /// The payment failed: expired, cancelled, blocked, or refunded after a failed settlement.
    Failed {
        /// Why.
        reason: super::status::FailureReason,
        /// When.
        at: Timestamp,
    },
    /// The settlement's transaction is final.
    SettlementCompleted {
        /// The settler's revision.
        revision: u32,
        /// What it moved, where that is not what was frozen last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amount: Option<Amount>,
        /// The transaction.
        tx_hash: Hash32,
        /// The time of its block.
        block_time: Timestamp,
    },
    /// The payment is settled (a confirmed payment whose settlement is complete).
    Settled {
        /// When.
        at: Timestamp,
    },
    /// The settlement failed for a lasting reason.
    SettlementFailed {
        /// The settler's revision.
        revision: u32,
        /// Why, for operators.
        reason: String,
        /// When it is tried again by itself.
        retry_at: Timestamp,
        /// Whether the PSP is told (the first time, and when it had asked for the attempt).
        announced: bool,
        /// When.
        at: Timestamp,
    },
    /// The settlement is to be tried again.
    SettlementRetried {
        /// Who asked.
        by: Requester,
    },
    /// The settlement is in the chain no more and is broadcast again.
    SettlementOrphaned {
        /// The settler's revision.
        revision: u32,
        /// Whether it was known to be final (else only the revision is noted).
        was_settled: bool,
        /// When.
        at: Timestamp,
    },
    /// A refund was accepted and its amount reserved.
    RefundRequested {
        /// The refund.
        refund: Box<Refund>,
        /// Whether it takes all that was to be settled, so that the settlement is withdrawn.
        withdraws_settlement: bool,
    },
    /// The address of a refund was screened.
    RefundScreened {
        /// Which.
        refund_id: RefundId,
        /// What was said.
        verdict: Box<Verdict>,
    },
    /// A refund's sending is final.
    RefundSent {
        /// Which.
        refund_id: RefundId,
        /// The settler's revision.
        #[serde(default)]
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
        /// When it was recorded.
        at: Timestamp,
    },
    /// A refund will not be sent, or was taken back by the chain for good; its amount is free again.
    RefundFailed {
        /// Which.
        refund_id: RefundId,
        /// The settler's revision, if the failure is its word.
        #[serde(default)]
        revision: u32,
        /// Why.
        reason: String,
        /// When the settlement that it had withdrawn is tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
        /// When it was recorded.
        at: Timestamp,
    },
}

impl Event {
    /// The name as stored, for indexes and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Initiated { .. } => "initiated",
            Self::TransferRecorded { .. } => "transfer_recorded",
            Self::TransferFinalised { .. } => "transfer_finalised",
            Self::TransferScreened { .. } => "transfer_screened",
            Self::TransferCounted { .. } => "transfer_counted",
            Self::Reorged { .. } => "reorged",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::DeadlineMoved { .. } => "deadline_moved",
            Self::Confirmed { .. } => "confirmed",
            Self::Mismatched { .. } => "mismatched",
            Self::Failed { .. } => "failed",
            Self::SettlementCompleted { .. } => "settlement_completed",
            Self::Settled { .. } => "settled",
            Self::SettlementFailed { .. } => "settlement_failed",
            Self::SettlementRetried { .. } => "settlement_retried",
            Self::SettlementOrphaned { .. } => "settlement_orphaned",
            Self::RefundRequested { .. } => "refund_requested",
            Self::RefundScreened { .. } => "refund_screened",
            Self::RefundSent { .. } => "refund_sent",
            Self::RefundFailed { .. } => "refund_failed",
        }
    }
}
