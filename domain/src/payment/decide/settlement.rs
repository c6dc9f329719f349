//! Facts about the settlement, from the settler's row. The newest revision wins, in any order of arrival.

use crate::ids::OperationId;
use crate::payment::event::Event;
use crate::payment::money_out::{Requester, Settlement, SettlementState};
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::Status;
use crate::time::Timestamp;

fn newer(payment: &Payment, operation: OperationId, revision: u32) -> Option<&Settlement> {
    let settlement = payment.settlement.as_deref()?;
    (settlement.operation == operation && settlement.revision < revision).then_some(settlement)
}

/// The chain executed the settlement. A confirmed payment becomes settled (`judge`). A settled payment whose settlement
/// was orphaned is settled again. Any other payment records it for a later confirmation.
pub(super) fn complete(
    payment: &Payment,
    operation: OperationId,
    revision: u32,
    completed: Event,
    now: Timestamp,
) -> Vec<Event> {
    match newer(payment, operation, revision) {
        None => Vec::new(),
        Some(settlement) if payment.status == Status::Settled && settlement.state != SettlementState::Settled => {
            vec![completed, Event::Settled { at: now }]
        }
        Some(_) => vec![completed],
    }
}

/// The settlement reverted for a permanent reason. The PSP is notified the first time, and whenever a person requested
/// the attempt.
pub(super) fn fail(
    payment: &Payment,
    operation: OperationId,
    revision: u32,
    reason: &str,
    now: Timestamp,
) -> Vec<Event> {
    let Some(settlement) = newer(payment, operation, revision) else { return Vec::new() };
    let under_way =
        matches!(payment.status, Status::Confirmed | Status::Settled) && settlement.state != SettlementState::Withdrawn;
    let announced = under_way && (settlement.failures == 0 || settlement.retry_demanded);
    let retry_at = super::retry_at(settlement.failures, now);
    vec![Event::SettlementFailed { revision, reason: reason.to_owned(), retry_at, announced, at: now }]
}

/// The settlement is no longer in the chain.
pub(super) fn orphan(payment: &Payment, operation: OperationId, revision: u32, now: Timestamp) -> Vec<Event> {
    let Some(settlement) = newer(payment, operation, revision) else { return Vec::new() };
    let was_settled = settlement.state == SettlementState::Settled;
    vec![Event::SettlementOrphaned { revision, was_settled, at: now }]
}

/// Retries a failed settlement, on request or on schedule.
pub(super) fn retry(payment: &Payment, by: Requester) -> Result<Vec<Event>, Rejection> {
    let state = payment.settlement.as_deref().map(|settlement| settlement.state);
    match state {
        Some(SettlementState::Failed) if payment.status == Status::Confirmed => {
            Ok(vec![Event::SettlementRetried { by }])
        }
        _ if by == Requester::Schedule => Ok(Vec::new()),
        Some(SettlementState::Queued) => Err(Rejection::SettlementInProgress),
        _ => Err(Rejection::SettlementNotFailed),
    }
}
