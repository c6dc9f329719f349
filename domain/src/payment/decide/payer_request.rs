//! Requests of payers for a refund. A request that is carried out, at once or by the PSP, is a refund like any other.

use super::refund;
use crate::ids::RefundRequestId;
use crate::money::Amount;
use crate::payment::command::{RefundAsk, RefundOrder};
use crate::payment::event::Event;
use crate::payment::money_out::{Requester, SettlementState};
use crate::payment::payer_request::{
    AddressProof, PayerRequest, REFUND_REQUESTS_MAX, REFUND_REQUESTS_OPEN_MAX, RefundRequestState,
};
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::Status;
use crate::time::Timestamp;

/// Accepts a request. A repeated request changes nothing.
pub(super) fn ask(payment: &Payment, ask: &RefundAsk, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let alike = || payment.refund_requests.iter().filter(|known| known.proof == ask.proof);
    if alike().any(|known| known.is_asked_by(ask)) {
        return Ok(Vec::new());
    }
    if payment.terms.payer_refunds.is_off() {
        return Err(Rejection::PayerRefundsOff);
    }
    if alike().count() >= REFUND_REQUESTS_MAX {
        return Err(Rejection::RefundRequestsExhausted);
    }
    let request = PayerRequest {
        id: ask.id,
        amount: ask.amount,
        to: ask.to,
        asset: ask.asset,
        proof: ask.proof,
        note: ask.note.clone(),
        state: RefundRequestState::Requested,
        requested_at: now,
        decided_at: None,
    };
    check_covered(payment, &request)?;
    refund::check_recipient(payment, ask.to, ask.asset)?;
    let mut events = Vec::with_capacity(2);
    if ask.at_once && ask.proof == AddressProof::Signature {
        let order = RefundOrder { plain: ask.plain, hold: ask.hold, ..request.order(Requester::Payer) };
        events = refund::accept(payment, &order, now)?;
    } else if alike().filter(|known| known.is_open()).count() >= REFUND_REQUESTS_OPEN_MAX {
        return Err(Rejection::RefundRequestsOpen);
    }
    events.insert(0, Event::RefundAsked { request: Box::new(request) });
    Ok(events)
}

/// Checks that a request asks only for money that payers may ask for now.
fn check_covered(payment: &Payment, request: &PayerRequest) -> Result<(), Rejection> {
    let all = payment.returnable_in(request.asset);
    let returnable = match request.proof {
        AddressProof::Signature => payment.returnable_to(request.to, request.asset),
        AddressProof::Claimed => all,
    };
    if returnable.is_zero() {
        let settling = payment.settlement.as_deref().is_some_and(|one| one.state == SettlementState::Queued);
        let is_due_token = request.asset.is_none();
        return Err(match payment.status {
            _ if !all.is_zero() => Rejection::NotTheSender,
            Status::Pending if is_due_token => Rejection::PaymentPending,
            Status::Confirmed | Status::Settled if is_due_token && settling => Rejection::SettlementInProgress,
            _ => Rejection::NothingToRefund,
        });
    }
    if request.amount <= Amount::ZERO || request.amount > returnable {
        return Err(Rejection::RefundTooLarge { requested: request.amount, refundable: returnable });
    }
    Ok(())
}

/// Checks a refund that answers a request: the request is open, and its money is still there. Payers order no refunds
/// themselves.
pub(super) fn check_answer(payment: &Payment, order: &RefundOrder) -> Result<(), Rejection> {
    if order.by == Requester::Payer {
        return Err(Rejection::RefundRequestClosed);
    }
    let Some(request) = payment.request_of(order.id) else { return Ok(()) };
    let asks_for = (Some(request.amount), Some(request.to), request.asset, request.funds());
    if !request.is_open() || asks_for != (order.amount, order.to, order.asset, order.funds) {
        return Err(Rejection::RefundRequestClosed);
    }
    check_covered(payment, request)
}

/// Declines an open request.
pub(super) fn decline(payment: &Payment, id: RefundRequestId, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let is_open = payment.refund_requests.iter().any(|request| request.id == id && request.is_open());
    if is_open {
        Ok(vec![Event::RefundRequestDeclined { request_id: id, at: now }])
    } else {
        Err(Rejection::RefundRequestClosed)
    }
}
