//! Effects of an event, to run after the commit. After a crash, `resume` returns those that are still due, from the
//! state.

use super::effect::{Alarm, Effect};
use super::event::Event;
use super::money_out::{Refund, RefundState, SettlementState};
use super::state::Payment;
use super::status::Status;
use super::transfer::{Decision, Transfer, TransferStatus};
use crate::chain::Chain;
use crate::money::Amount;

/// Time a review may take before the operator is alarmed.
pub const REVIEW_ALARM_SECS: i64 = 24 * 3_600;

/// Returns the effects of `event`, given the payment after the whole commit. An event that a later event of the same
/// commit superseded has no effects.
pub fn react(after: &Payment, event: &Event) -> Vec<Effect> {
    match event {
        Event::Initiated { .. }
        | Event::DeadlineMoved { .. }
        | Event::DeadlinePassed { .. }
        | Event::Mismatched { .. } => deadline(after).into_iter().collect(),
        Event::TransferRecorded { transfer, .. } => recorded(after, transfer),
        Event::TransferScreened { key, verdict } => {
            let transfer = after.transfer(*key);
            let mut effects: Vec<Effect> = transfer.and_then(review).into_iter().collect();
            if verdict.decision == Decision::Block {
                effects.push(Effect::Alarm(Alarm::FundsBlocked { key: *key }));
            }
            effects
        }
        Event::Reorged { key, reopened, .. } => {
            let mut effects: Vec<Effect> = deadline(after).into_iter().chain(settlement(after)).collect();
            if *reopened {
                effects.push(Effect::Alarm(Alarm::ReceivedMoneyOrphaned { key: *key }));
            }
            effects.extend(overdrawn(after));
            effects
        }
        Event::Confirmed { .. } | Event::SettlementRetried { .. } | Event::RefundFailed { .. } => {
            settlement(after).into_iter().collect()
        }
        Event::SettlementFailed { announced, .. } => {
            let failures = after.settlement.as_deref().map_or(0, |settlement| settlement.failures);
            let operation = crate::ids::OperationId::settlement_of(after.id());
            let alarm = announced.then_some(Effect::Alarm(Alarm::SettlementFailed { operation, failures }));
            settlement(after).into_iter().chain(alarm).collect()
        }
        Event::SettlementOrphaned { was_settled: true, .. } => {
            let operation = crate::ids::OperationId::settlement_of(after.id());
            let alarm = Effect::Alarm(Alarm::SettlementOrphaned { operation });
            settlement(after).into_iter().chain([alarm]).collect()
        }
        Event::RefundRequested { .. } => refund_screenings(after).into_iter().chain(settlement(after)).collect(),
        Event::RefundScreened { .. } => refund_screenings(after).into_iter().chain(queued_refunds(after)).collect(),
        Event::RefundSent { .. } => overdrawn(after).into_iter().collect(),
        Event::TransferFinalised { .. }
        | Event::TransferCounted { .. }
        | Event::Failed { .. }
        | Event::Settled { .. }
        | Event::SettlementCompleted { .. }
        | Event::SettlementOrphaned { .. } => Vec::new(),
    }
}

/// A new transfer can change the required finality of all transfers; an orphaned one can change the deadline.
fn recorded(after: &Payment, recorded: &Transfer) -> Vec<Effect> {
    if recorded.status == TransferStatus::Ignored {
        return Vec::new();
    }
    let mut effects = finalities(after);
    let transfer = after.transfer(recorded.key);
    effects.extend(transfer.and_then(screening));
    effects.extend(transfer.and_then(review));
    effects.extend(deadline(after));
    effects
}

fn overdrawn(after: &Payment) -> Option<Effect> {
    let missing = -after.net_units();
    (missing > 0).then_some(Effect::Alarm(Alarm::Overdrawn { amount: Amount(missing) }))
}

/// Waits for the deadline while it can still change the payment.
pub(super) fn deadline(payment: &Payment) -> Option<Effect> {
    let at = payment.deadline();
    payment.awaits_deadline().then_some(Effect::AwaitDeadline { chain: payment.terms.chain, at })
}

/// Waits for the finality of all seen transfers.
pub(super) fn finalities(payment: &Payment) -> Vec<Effect> {
    let finality = payment.required_finality();
    let seen = payment.transfers.iter().filter(|transfer| transfer.status == TransferStatus::Seen);
    let wait = |t: &Transfer| Effect::AwaitFinality {
        key: t.key,
        revision: t.revision,
        block_number: t.block.number,
        finality,
    };
    seen.map(wait).collect()
}

/// Screens a transfer that has no verdict.
pub(super) fn screening(transfer: &Transfer) -> Option<Effect> {
    let unscreened = transfer.awaits_screening() && transfer.verdict.is_none();
    unscreened.then_some(Effect::Screen {
        key: transfer.key,
        revision: transfer.revision,
        from: transfer.from,
        amount: transfer.amount,
    })
}

/// Waits for the review of a transfer.
pub(super) fn review(transfer: &Transfer) -> Option<Effect> {
    let verdict = transfer.verdict.as_deref()?;
    let waits = transfer.awaits_screening() && verdict.decision == Decision::Review;
    let alarm_at = verdict.checked_at.plus_secs(REVIEW_ALARM_SECS);
    waits.then_some(Effect::AwaitReview { key: transfer.key, revision: transfer.revision, alarm_at })
}

/// Notifies the settler about the current state of the settlement.
pub(super) fn settlement(payment: &Payment) -> Option<Effect> {
    let settlement = payment.settlement.as_deref()?;
    let (operation, chain) = (settlement.operation, payment.terms.chain);
    match settlement.state {
        SettlementState::Queued => Some(Effect::Settle { operation, chain }),
        SettlementState::Withdrawn => Some(Effect::CancelSettlement { operation, chain }),
        SettlementState::Failed if payment.status == Status::Confirmed => {
            settlement.retry_at.map(|at| Effect::AwaitRetry { operation, at })
        }
        SettlementState::Failed | SettlementState::Settled => None,
    }
}

/// Screens the addresses of refunds.
pub(super) fn refund_screenings(payment: &Payment) -> Vec<Effect> {
    let screening = |refund: &Refund| {
        let (refund_id, to, amount, chain) = (refund.id, refund.to, refund.amount, chain_of(payment, refund));
        match refund.verdict.as_deref() {
            None => Effect::ScreenRefund { refund_id, to, amount, chain },
            Some(verdict) => {
                let alarm_at = verdict.checked_at.plus_secs(REVIEW_ALARM_SECS);
                Effect::AwaitRefundReview { refund_id, to, amount, chain, alarm_at }
            }
        }
    };
    payment.refunds.iter().filter(|refund| refund.awaits_screening()).map(screening).collect()
}

fn chain_of(payment: &Payment, refund: &Refund) -> Chain {
    refund.asset.map_or(payment.terms.chain, |asset| asset.chain)
}

/// Notifies the settler about queued refunds.
pub(super) fn queued_refunds(payment: &Payment) -> Vec<Effect> {
    let cleared = |refund: &&Refund| refund.state == RefundState::Pending && !refund.awaits_screening();
    let send = |refund: &Refund| Effect::Send {
        operation: refund.operation,
        refund_id: refund.id,
        chain: chain_of(payment, refund),
    };
    payment.refunds.iter().filter(cleared).map(send).collect()
}
