//! Decisions of a person about a payment: cancel it, or accept the amount received.

use super::judge::confirmation;
use crate::money::Amount;
use crate::payment::event::Event;
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::{FailureReason, Reason, Status};
use crate::time::Timestamp;

/// Cancels a pending payment without transfers. Dust is ignored, because otherwise a stranger could keep the payment
/// open.
pub(super) fn cancel(payment: &Payment, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if payment.status != Status::Pending {
        return Err(Rejection::PaymentNotPending { status: payment.status });
    }
    if payment.transfers.iter().any(|transfer| !payment.is_dust(transfer)) {
        return Err(Rejection::TransferRecorded);
    }
    Ok(vec![Event::Failed { reason: FailureReason::Cancelled, at: now }])
}

/// Confirms a mismatched payment for its net amount.
pub(super) fn accept(
    payment: &Payment,
    expected_received: Option<Amount>,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    if payment.status != Status::Mismatched {
        let blocked = payment.failure_reason == Some(FailureReason::KytBlocked);
        let refusal = Rejection::PaymentNotMismatched { status: payment.status };
        return Err(if blocked { Rejection::FundsBlocked } else { refusal });
    }
    let received = payment.amount_received();
    if let Some(expected) = expected_received.filter(|expected| *expected != received) {
        return Err(Rejection::ReceivedMoved { expected, received });
    }
    if payment.settleable().is_zero() {
        let blocked = !payment.blocked_held().is_zero();
        return Err(if blocked { Rejection::FundsBlocked } else { Rejection::NothingToAccept });
    }
    Ok(vec![confirmation(payment, payment.settleable(), payment.labels, Reason::Accepted, now)])
}
