//! The public names of what happens, and which of them an event announces.

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::state::Payment;
use super::status::{FailureReason, Reason, Status};
use crate::chain::Hash32;
use crate::ids::RefundId;
use crate::named::named;
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
        /// Surplus, late or wrong money for a transfer.
        TransferMismatched = "transfer.mismatched",
        /// The chain took back a transfer's money, or its delivery.
        TransferReorged = "transfer.reorged",
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
    /// Why it had failed, if it had. Money that comes late takes the payment out of that again, maybe in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// The transaction it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// The refund it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<RefundId>,
}

/// The public names that an event announces, in the order in which they are sent. `payment.*` and `payin.*` are two
/// names of one happening, and both are announced.
pub fn announced(after: &Payment, event: &Event) -> &'static [EventName] {
    if after.terms.purpose.is_pay_in() { of_payment(after, event) } else { of_transfer(after, event) }
}

/// Those of a transfer to a customer: what failed for good is told once, even if the money is refunded later.
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

/// Whether a transfer has failed with its last step, and had not before.
fn fails(after: &Payment) -> bool {
    let before = after.public_history().take(after.history.len().saturating_sub(1)).last();
    after.public_status() == "failed" && before.is_none_or(|(_, status)| status != "failed")
}

fn of_payment(after: &Payment, event: &Event) -> &'static [EventName] {
    use EventName as Name;
    const MISMATCHED: &[EventName] = &[Name::PaymentMismatched, Name::PayinMismatched];
    match event {
        // A policy takes it as paid; that it was too much is told all the same, since nobody was asked. Money that somebody
        // accepts was told as mismatched when it came, and is confirmed for another reason.
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

/// The announcements of an event; `after` is the payment right after it.
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

/// The transaction that an announcement names: the settlement's, the sending's, that of the transfer it is about, or of the
/// last transfer that counted.
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
