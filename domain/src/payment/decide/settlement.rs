//! Facts about the settlement, from the settler's row. Newer revisions win, whatever order they come in.

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

/// The chain carried it out. A confirmed payment is settled by that (`judge`); a settled one whose settlement had been
/// orphaned is settled anew; any other only remembers it, for when it is confirmed again.
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

/// It reverted for a lasting reason. The PSP is told the first time, and again when it had asked for the attempt.
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

/// It is in the chain no more.
pub(super) fn orphan(payment: &Payment, operation: OperationId, revision: u32, now: Timestamp) -> Vec<Event> {
    let Some(settlement) = newer(payment, operation, revision) else { return Vec::new() };
    let was_settled = settlement.state == SettlementState::Settled;
    vec![Event::SettlementOrphaned { revision, was_settled, at: now }]
}

/// Tries a failed one again: on demand, or when its time has come.
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
