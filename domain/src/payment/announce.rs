//! The public names of what happens, and which of them an event announces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::state::Payment;
use super::status::{Status, named};
use crate::chain::Hash32;
use crate::ids::RefundId;
use crate::money::UnknownName;
use crate::time::Timestamp;

named! {
    /// The name of a public event.
    EventName, "the name of a webhook event" {
        /// Funds arrived.
        PaymentConfirmed = "payment.confirmed",
        /// Settlement complete.
        PaymentSettled = "payment.settled",
        /// Overpayment, underpayment, late, excess or wrong money.
        PaymentMismatched = "payment.mismatched",
        /// Failure, block or expiry.
        PaymentFailed = "payment.failed",
        /// The chain took back money or a settlement.
        PaymentReorged = "payment.reorged",
        /// Pay-in detected and confirmed on-chain.
        PayinConfirmed = "payin.confirmed",
        /// Pay-in settled.
        PayinSettled = "payin.settled",
        /// Pay-in confirmed but settlement failed.
        PayinSettlementFailed = "payin.settlement_failed",
        /// Pay-in failed.
        PayinFailed = "payin.failed",
        /// Received amount does not match the expected value.
        PayinMismatched = "payin.mismatched",
        /// Received amount lower than expected.
        PayinUnderpaid = "payin.underpaid",
        /// Payout created.
        PayoutPending = "payout.pending",
        /// Payout executed.
        PayoutSent = "payout.sent",
        /// Payout could not be completed.
        PayoutFailed = "payout.failed",
        /// Withdrawal executed.
        WithdrawSent = "withdraw.sent",
        /// Withdrawal failed.
        WithdrawFailed = "withdraw.failed",
        /// Refund executed.
        RefundSent = "refund.sent",
        /// Refund failed.
        RefundFailed = "refund.failed",
        /// Transfer completed.
        TransferSettled = "transfer.settled",
        /// Transfer execution failed.
        TransferFailed = "transfer.failed",
        /// Transfer underpaid by the sender.
        TransferUnderpaid = "transfer.underpaid",
        /// The endpoint's test.
        WebhookTest = "webhook.test",
    }
}

/// One public event of a payment. Everything that was true at that step and may not be any more stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its name.
    pub name: EventName,
    /// Its place in the payment's feed: 1, 2, 3, ... without gaps.
    pub sequence: u32,
    /// When it happened.
    pub at: Timestamp,
    /// The payment's status then.
    pub status: Status,
    /// The transaction it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// The refund it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<RefundId>,
}

/// The public names that an event announces, in the order in which they are sent.
pub fn announced(_after: &Payment, _event: &Event) -> &'static [EventName] {
    &[]
}
