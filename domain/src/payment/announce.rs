//! Names of public events, and the public events that each internal event announces.

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::state::Payment;
use super::status::{FailureReason, Reason, Status};
use crate::chain::Hash32;
use crate::ids::RefundId;
use crate::named::named;
use crate::time::Timestamp;

named! {
    /// Name of a public event.
    EventName, "the name of a webhook event" {
        /// Funds were received.
        PaymentConfirmed = "payment.confirmed",
        /// Settlement completed.
        PaymentSettled = "payment.settled",
        /// Overpayment, underpayment, or late, excess, or misdirected funds.
        PaymentMismatched = "payment.mismatched",
        /// Failure, blocked funds, or expiry.
        PaymentFailed = "payment.failed",
        /// Funds or a settlement were orphaned.
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
        /// Surplus, late, or misdirected funds for a transfer.
        TransferMismatched = "transfer.mismatched",
        /// The funds or the delivery of a transfer were orphaned.
        TransferReorged = "transfer.reorged",
        /// Test event of an endpoint.
        WebhookTest = "webhook.test",
    }
}

/// One public event of a payment. Stores the values of that time that may change later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Name.
    pub name: EventName,
    /// Position in the event feed of the payment: 1, 2, 3, ... without gaps.
    pub sequence: u32,
    /// When it happened.
    pub at: Timestamp,
    /// Status of the payment at that time.
    pub status: Status,
    /// Failure reason at that time. A late transfer can clear it again, even in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// Transaction of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// Refund of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<RefundId>,
}

/// Returns the public events that `event` announces, in the order of delivery. `payment.*` and `payin.*` are two names
/// for the same event; both are announced.
pub fn announced(after: &Payment, event: &Event) -> &'static [EventName] {
    if after.terms.purpose.is_pay_in() { of_payment(after, event) } else { of_transfer(after, event) }
}

/// Public events of a transfer to a customer. A final failure is announced once, even if the funds are refunded later.
fn of_transfer(after: &Payment, event: &Event) -> &'static [EventName] {
    use EventName as Name;
    match event {
        Event::Mismatched { reason: Reason::Underpaid, .. } => &[Name::TransferUnderpaid],
        Event::Mismatched { .. } if fails(after) => &[Name::TransferMismatched, Name::TransferFailed],
        Event::Mismatched { .. }
        | Event::TransferCounted { excess: true, .. }
        | Event::Confirmed { reason: Reason::Overpaid, .. } => &[Name::TransferMismatched],
        Event::TransferFinalised { key } if after.transfer(*key).is_some_and(|t| !t.is_right()) => {
            &[Name::TransferMismatched]
        }
        Event::Failed { reason: FailureReason::SettlementFailed, .. } => &[],
        Event::Failed { .. } | Event::SettlementFailed { announced: true, .. } => &[Name::TransferFailed],
        Event::Settled { .. } => &[Name::TransferSettled],
        Event::SettlementOrphaned { was_settled: true, .. } if after.status == Status::Settled => {
            &[Name::TransferReorged]
        }
        Event::Reorged { .. } => &[Name::TransferReorged],
        Event::RefundSent { .. } => &[Name::RefundSent],
        Event::RefundFailed { .. } => &[Name::RefundFailed],
        _ => &[],
    }
}

/// Returns true if the last step made the transfer fail and it had not failed before.
fn fails(after: &Payment) -> bool {
    let before = after.public_history().take(after.history.len().saturating_sub(1)).last();
    after.public_status() == "failed" && before.is_none_or(|(_, status)| status != "failed")
}

fn of_payment(after: &Payment, event: &Event) -> &'static [EventName] {
    use EventName as Name;
    const MISMATCHED: &[EventName] = &[Name::PaymentMismatched, Name::PayinMismatched];
    match event {
        // The overpayment policy accepted the surplus without asking the PSP, so the mismatch is announced too. If the
        // PSP accepts a surplus, the mismatch was announced earlier and the payment is confirmed for another reason.
        Event::Confirmed { reason: Reason::Overpaid, .. } => {
            &[Name::PaymentMismatched, Name::PayinMismatched, Name::PaymentConfirmed, Name::PayinConfirmed]
        }
        Event::Confirmed { .. } => &[Name::PaymentConfirmed, Name::PayinConfirmed],
        Event::Mismatched { reason: Reason::Underpaid, .. } => {
            &[Name::PaymentMismatched, Name::PayinUnderpaid, Name::PayinMismatched]
        }
        Event::Mismatched { .. } | Event::TransferCounted { excess: true, .. } => MISMATCHED,
        Event::TransferFinalised { key } if after.transfer(*key).is_some_and(|t| !t.is_right()) => {
            &[Name::PaymentMismatched]
        }
        Event::Failed { reason: FailureReason::SettlementFailed, .. } => &[Name::PaymentFailed],
        Event::Failed { .. } => &[Name::PaymentFailed, Name::PayinFailed],
        Event::Settled { .. } => &[Name::PaymentSettled, Name::PayinSettled],
        Event::SettlementFailed { announced: true, .. } => &[Name::PayinSettlementFailed],
        Event::SettlementOrphaned { was_settled: true, .. } if after.status == Status::Settled => {
            &[Name::PaymentReorged]
        }
        Event::Reorged { .. } => &[Name::PaymentReorged],
        Event::RefundSent { .. } => &[Name::RefundSent],
        Event::RefundFailed { .. } => &[Name::RefundFailed],
        _ => &[],
    }
}

/// Returns the announcements of an event. `after` is the payment directly after the event.
pub(crate) fn announcements(after: &Payment, event: &Event, at: Timestamp) -> Vec<Announcement> {
    let names = announced(after, event);
    let last = after.sequence;
    let count = u32::try_from(names.len()).unwrap_or(0);
    let sequences = last.saturating_sub(count) + 1..;
    names
        .iter()
        .zip(sequences)
        .map(|(name, sequence)| Announcement {
            name: *name,
            sequence,
            at,
            status: after.status,
            failure_reason: after.failure_reason.filter(|_| after.status == Status::Failed),
            tx_hash: transaction(after, event),
            refund_id: match event {
                Event::RefundSent { refund_id, .. } | Event::RefundFailed { refund_id, .. } => Some(*refund_id),
                _ => None,
            },
        })
        .collect()
}

/// Returns the transaction of an announcement: the settlement, the outbound transfer, the transfer that the event is
/// about, or the last counted transfer.
fn transaction(after: &Payment, event: &Event) -> Option<Hash32> {
    match event {
        Event::Confirmed { .. } | Event::Mismatched { .. } => after.last_counted().map(|transfer| transfer.key.tx_hash),
        Event::TransferCounted { key, .. } | Event::TransferFinalised { key } | Event::Reorged { key, .. } => {
            Some(key.tx_hash)
        }
        Event::Settled { .. } => after.settlement.as_ref().and_then(|settlement| settlement.tx_hash),
        Event::RefundSent { tx_hash, .. } => Some(*tx_hash),
        _ => None,
    }
}
