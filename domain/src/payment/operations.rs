//! The operation rows that an event writes in its own commit.

use super::event::Event;
use super::money_out::{NewOperation, OperationAction, OperationBody, Refund, Settlement, SettlementState};
use super::state::Payment;
use super::status::{Reason, Status};

/// The changes of the operation queue because of `event`; `after` is the payment right after it.
pub(super) fn operations(after: &Payment, event: &Event) -> Vec<NewOperation> {
    let settlement = after.settlement.as_deref();
    let settle = |action| settlement.map(|settlement| settling(after, settlement, action));
    let state = settlement.map(|settlement| settlement.state);
    match event {
        Event::Confirmed { .. } if state == Some(SettlementState::Queued) => {
            let action = if confirmations(after) > 1 { OperationAction::Requeue } else { OperationAction::Queue };
            settle(action).into_iter().collect()
        }
        Event::SettlementRetried { .. } => settle(OperationAction::Requeue).into_iter().collect(),
        Event::SettlementOrphaned { was_settled: true, .. } => match state {
            Some(SettlementState::Queued) => settle(OperationAction::Requeue).into_iter().collect(),
            _ => settle(OperationAction::Cancel).into_iter().collect(),
        },
        Event::Reorged { reopened: true, .. } if state == Some(SettlementState::Withdrawn) => {
            settle(OperationAction::Cancel).into_iter().collect()
        }
        Event::RefundRequested { refund, withdraws_settlement } => {
            let cancelled = withdraws_settlement.then(|| settle(OperationAction::Cancel)).flatten();
            cancelled.into_iter().chain([sending(after, refund)]).collect()
        }
        _ => Vec::new(),
    }
}

/// How often the payment has been confirmed: from the second time on the operation's row exists.
fn confirmations(payment: &Payment) -> usize {
    let confirming = [Reason::Paid, Reason::Overpaid, Reason::Accepted];
    let confirmed = payment.history.iter().filter(|entry| entry.status == Status::Confirmed);
    confirmed.filter(|entry| confirming.contains(&entry.reason)).count()
}

fn settling(payment: &Payment, settlement: &Settlement, action: OperationAction) -> NewOperation {
    let Settlement { operation, amount, psp_amount, treasury_fee, .. } = *settlement;
    let body = OperationBody::Settle { amount, psp_amount, treasury_fee };
    operation_of(payment, operation, action, body)
}

fn sending(payment: &Payment, refund: &Refund) -> NewOperation {
    let Refund { id: refund_id, source, to, amount, .. } = *refund;
    operation_of(
        payment,
        refund.operation,
        OperationAction::Queue,
        OperationBody::Send { refund_id, source, to, amount },
    )
}

fn operation_of(
    payment: &Payment,
    id: crate::ids::OperationId,
    action: OperationAction,
    body: OperationBody,
) -> NewOperation {
    let terms = &payment.terms;
    let (chain, token, token_address, wallet) = (terms.chain, terms.token, terms.token_address, terms.wallet);
    NewOperation { id, action, chain, token, token_address, wallet, body }
}
