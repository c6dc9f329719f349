//! Operation rows that an event writes in its own commit.

use super::event::Event;
use super::money_out::{NewOperation, OperationAction, OperationBody, Refund, Settlement, SettlementState};
use super::state::Payment;
use super::status::{Reason, Status};
use super::terms::Purpose;
use super::transfer::Decision;
use crate::ledger::Asset;

/// Returns the changes of the operation queue for `event`. `after` is the payment directly after the event.
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
        // A settlement in progress whose funds were orphaned is cancelled as soon as the chain rejects it.
        Event::Reorged { reopened: true, .. } | Event::SettlementFailed { .. }
            if state == Some(SettlementState::Withdrawn) =>
        {
            settle(OperationAction::Cancel).into_iter().collect()
        }
        Event::RefundRequested { withdraws_settlement: true, .. } => {
            settle(OperationAction::Cancel).into_iter().collect()
        }
        Event::RefundScreened { refund_id, verdict } if verdict.decision == Decision::Allow => {
            let refund = after.refunds.iter().find(|refund| refund.id == *refund_id);
            refund.map(|refund| refund_operation(after, refund)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the number of confirmations. From the second on, the row of the operation exists.
fn confirmations(payment: &Payment) -> usize {
    let confirming = [Reason::Paid, Reason::Overpaid, Reason::Accepted];
    let confirmed = payment.history.iter().filter(|entry| entry.status == Status::Confirmed);
    confirmed.filter(|entry| confirming.contains(&entry.reason)).count()
}

fn settling(payment: &Payment, settlement: &Settlement, action: OperationAction) -> NewOperation {
    let Settlement { operation, amount, psp_amount, treasury_fee, .. } = *settlement;
    let body = match payment.terms.purpose {
        Purpose::PayIn => OperationBody::Settle { amount, psp_amount, treasury_fee },
        Purpose::Transfer { to } => OperationBody::Deliver { to, amount },
    };
    operation_of(payment, operation, action, payment.asset(), body)
}

fn refund_operation(payment: &Payment, refund: &Refund) -> NewOperation {
    let Refund { id: refund_id, source, to, amount, .. } = *refund;
    let asset = refund.asset.unwrap_or_else(|| payment.asset());
    let body = OperationBody::Send { refund_id, source, to, amount };
    operation_of(payment, refund.operation, OperationAction::Queue, asset, body)
}

fn operation_of(
    payment: &Payment,
    id: crate::ids::OperationId,
    action: OperationAction,
    asset: Asset,
    body: OperationBody,
) -> NewOperation {
    NewOperation { id, action, chain: asset.chain, token_address: asset.address, wallet: payment.terms.wallet, body }
}
