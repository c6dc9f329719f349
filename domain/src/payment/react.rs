//! Consequences of an event: the effects to run after the commit, and the operation rows and ledger postings of the commit
//! itself.

use super::authorization::{Authorization, AuthorizationKind, AuthorizationState};
use super::event::{Alarm, AlarmKind, Effect, Event};
use super::evolve::{collected_settlement, is_settled_by_collection};
use super::money_out::{
    NewOperation, OperationAction, OperationBody, PayerTerms, Refund, RefundState, Settlement, SettlementState, Vault,
};
use super::state::Payment;
use super::status::{Label, Reason, Status};
use super::terms::Purpose;
use super::transfer::{Decision, Transfer, TransferStatus};
use crate::chain::{Chain, Hash32};
use crate::ids::OperationId;
use crate::ledger::{Account, Asset, Posting, PostingKind};
use crate::money::{Amount, Split, split_fee};

/// Time a review may take before the operator is alarmed.
pub const REVIEW_ALARM_SECS: i64 = 24 * 3_600;

/// Returns the effects of `event`, given the payment after the whole commit. An event that a later event of the same
/// commit superseded has no effects.
pub fn react(after: &Payment, event: &Event) -> Vec<Effect> {
    match event {
        Event::Initiated { .. }
        | Event::ChainChosen { .. }
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
            let operation = OperationId::settlement_of(after.id());
            let alarm = announced.then_some(Effect::Alarm(Alarm::SettlementFailed { operation, failures }));
            settlement(after).into_iter().chain(alarm).collect()
        }
        Event::SettlementOrphaned { was_settled: true, .. } => {
            let operation = OperationId::settlement_of(after.id());
            let alarm = Effect::Alarm(Alarm::SettlementOrphaned { operation });
            settlement(after).into_iter().chain([alarm]).collect()
        }
        Event::AuthorizationAccepted { .. } | Event::AuthorizationScreened { .. } | Event::AuthorizationQueued => {
            authorization(after).into_iter().collect()
        }
        // It may take a wait for the deadline that was over.
        Event::AuthorizationEnded { .. } | Event::AuthorizationOrphaned { .. } => {
            deadline(after).into_iter().chain(authorization(after)).collect()
        }
        Event::RefundRequested { .. } => refund_screenings(after).into_iter().chain(settlement(after)).collect(),
        Event::RefundScreened { .. } => refund_screenings(after).into_iter().chain(queued_refunds(after)).collect(),
        Event::RefundApproved { .. } => queued_refunds(after),
        Event::RefundSent { .. } => overdrawn(after).into_iter().collect(),
        Event::TransferFinalised { .. }
        | Event::TransferCounted { .. }
        | Event::AuthorizationCollected { .. }
        | Event::Failed { .. }
        | Event::Settled { .. }
        | Event::SettlementCompleted { .. }
        | Event::SettlementOrphaned { .. }
        | Event::RefundAsked { .. }
        | Event::RefundRequestDeclined { .. } => Vec::new(),
    }
}

/// Returns all effects that are still due after a restart, computed only from the state: the same waits and notifications
/// as from `react`. They are idempotent, so extra calls only cost time. Alarms are not repeated, because the labels show
/// their cause.
pub fn resume(payment: &Payment) -> Vec<Effect> {
    let mut effects = finalities(payment);
    effects.extend(payment.transfers.iter().filter_map(screening));
    effects.extend(payment.transfers.iter().filter_map(review));
    effects.extend(deadline(payment));
    effects.extend(settlement(payment));
    effects.extend(authorization(payment));
    effects.extend(refund_screenings(payment));
    effects.extend(queued_refunds(payment));
    if payment.sequence > 0 {
        effects.push(Effect::DeliverWebhooks);
    }
    if !payment.is_live() {
        effects.push(Effect::Passivate);
    }
    effects
}

/// Returns true if nothing is due except the wait for the deadline, so that only a fact, a request or the deadline changes the
/// payment. Webhooks that are due have rows of their own.
pub fn only_waits(payment: &Payment) -> bool {
    let due = resume(payment);
    let is_deadline = |effect: &Effect| matches!(effect, Effect::AwaitDeadline { .. });
    due.iter().any(is_deadline) && due.iter().all(|effect| is_deadline(effect) || *effect == Effect::DeliverWebhooks)
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

/// Returns the kinds of alarms of the payment that end with a commit.
pub fn ended_alarms(before: &Payment, after: &Payment, events: &[Event]) -> Vec<AlarmKind> {
    // All alarms follow a reorganisation.
    if !before.labels.contains(Label::Reorged) {
        return Vec::new();
    }
    let has = |is_it: fn(&Event) -> bool| events.iter().any(is_it);
    let ended = |kind| match kind {
        AlarmKind::ReceivedMoneyOrphaned => has(|event| matches!(event, Event::Confirmed { .. })),
        AlarmKind::SettlementOrphaned => has(|event| matches!(event, Event::SettlementCompleted { .. })),
        AlarmKind::Overdrawn => before.net_units() < 0 && after.net_units() >= 0,
    };
    AlarmKind::ALL.into_iter().filter(|kind| ended(*kind)).collect()
}

fn overdrawn(after: &Payment) -> Option<Effect> {
    let missing = -after.net_units();
    (missing > 0).then_some(Effect::Alarm(Alarm::Overdrawn { amount: Amount(missing) }))
}

/// Waits for the deadline while it can still change the payment.
fn deadline(payment: &Payment) -> Option<Effect> {
    let at = payment.deadline();
    payment.awaits_deadline().then_some(Effect::AwaitDeadline { chain: payment.terms.chain, at })
}

/// Waits for the finality of all seen transfers.
fn finalities(payment: &Payment) -> Vec<Effect> {
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
fn screening(transfer: &Transfer) -> Option<Effect> {
    let unscreened = transfer.awaits_screening() && transfer.verdict.is_none();
    unscreened.then_some(Effect::Screen { key: transfer.key, from: transfer.from, amount: transfer.amount })
}

/// Waits for the review of a transfer.
fn review(transfer: &Transfer) -> Option<Effect> {
    let verdict = transfer.verdict.as_deref()?;
    let waits = transfer.awaits_screening() && verdict.decision == Decision::Review;
    let alarm_at = verdict.checked_at.plus_secs(REVIEW_ALARM_SECS);
    waits.then_some(Effect::AwaitReview { key: transfer.key, alarm_at })
}

/// Notifies the settler about the current state of the settlement.
fn settlement(payment: &Payment) -> Option<Effect> {
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

/// Screens the payer of the authorization, or notifies the settler about it.
fn authorization(payment: &Payment) -> Option<Effect> {
    let Authorization { operation, from, value, state, ref verdict, .. } = *payment.authorization.as_deref()?;
    let chain = payment.terms.chain;
    let alarm_at = verdict.as_deref().map(|verdict| verdict.checked_at.plus_secs(REVIEW_ALARM_SECS));
    match state {
        AuthorizationState::Screening if verdict.is_none() => {
            Some(Effect::ScreenAuthorization { operation, from, amount: value, alarm_at: None })
        }
        AuthorizationState::Review => Some(Effect::ScreenAuthorization { operation, from, amount: value, alarm_at }),
        AuthorizationState::Queued => Some(Effect::Collect { operation, chain }),
        _ => None,
    }
}

/// Screens the addresses of refunds.
fn refund_screenings(payment: &Payment) -> Vec<Effect> {
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
fn queued_refunds(payment: &Payment) -> Vec<Effect> {
    let send = |refund: &Refund| Effect::Send {
        operation: refund.operation,
        refund_id: refund.id,
        chain: chain_of(payment, refund),
    };
    payment.refunds.iter().filter(|refund| refund.is_cleared()).map(send).collect()
}

/// Returns the change of the operation queue for `event`. `after` is the payment directly after the event.
pub(super) fn operation(after: &Payment, event: &Event) -> Option<NewOperation> {
    let settlement = after.settlement.as_deref();
    let settle = |action| settlement.map(|settlement| settling(after, settlement, action));
    let state = settlement.map(|settlement| settlement.state);
    match event {
        Event::Confirmed { .. } if state == Some(SettlementState::Queued) => {
            settle(if confirmations(after) > 1 { OperationAction::Requeue } else { OperationAction::Queue })
        }
        Event::SettlementRetried { .. } => settle(OperationAction::Requeue),
        Event::AuthorizationQueued => {
            after.authorization.as_deref().map(|authorization| collecting(after, authorization))
        }
        Event::SettlementOrphaned { was_settled: true, .. } => match state {
            Some(SettlementState::Queued) => settle(OperationAction::Requeue),
            _ => settle(OperationAction::Cancel),
        },
        // A settlement in progress whose funds were orphaned is cancelled as soon as the chain rejects it.
        Event::Reorged { reopened: true, .. } | Event::SettlementFailed { .. }
            if state == Some(SettlementState::Withdrawn) =>
        {
            settle(OperationAction::Cancel)
        }
        Event::RefundRequested { withdraws_settlement: true, .. } => settle(OperationAction::Cancel),
        Event::RefundScreened { refund_id, .. } | Event::RefundApproved { refund_id, .. } => {
            let refund = after.refunds.iter().find(|refund| refund.id == *refund_id && refund.is_cleared());
            refund.filter(|refund| refund.decision() == Some(Decision::Allow)).map(|it| refund_operation(after, it))
        }
        _ => None,
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

fn collecting(payment: &Payment, authorization: &Authorization) -> NewOperation {
    let Authorization { operation, kind, from, value: amount, nonce, valid_before, .. } = *authorization;
    let payer = PayerTerms { from, nonce, valid_before };
    let body = match kind {
        AuthorizationKind::Receive => {
            let Split { psp_amount, treasury_fee } = split_fee(amount, payment.terms.fee_bps);
            OperationBody::Collect { amount, psp_amount, treasury_fee, payer }
        }
        AuthorizationKind::Transfer => OperationBody::Deposit { amount, payer },
    };
    operation_of(payment, operation, OperationAction::Queue, payment.asset(), body)
}

fn refund_operation(payment: &Payment, refund: &Refund) -> NewOperation {
    let Refund { id: refund_id, source, to, amount, .. } = *refund;
    let asset = refund.asset.unwrap_or_else(|| payment.asset());
    let body = OperationBody::Send { refund_id, source, to, amount };
    operation_of(payment, refund.operation, OperationAction::Queue, asset, body)
}

fn operation_of(
    payment: &Payment,
    id: OperationId,
    action: OperationAction,
    asset: Asset,
    body: OperationBody,
) -> NewOperation {
    NewOperation { id, action, chain: asset.chain, token_address: asset.address, wallet: payment.terms.wallet, body }
}

/// Returns the postings of `event`. `before` is the payment directly before the event.
pub(super) fn postings(before: &Payment, event: &Event) -> Vec<Posting> {
    match event {
        Event::TransferFinalised { key } => {
            before.transfer(*key).map(|transfer| received(before, transfer)).into_iter().collect()
        }
        Event::TransferRecorded { transfer, .. } => posted_entry(before, transfer),
        Event::AuthorizationCollected { transfer: Some(transfer), tx_hash, .. } => {
            let shares = collected_settlement(before, transfer).map(|shares| settled(before, &shares, *tx_hash));
            [received(before, transfer)].into_iter().chain(shares.into_iter().flatten()).collect()
        }
        Event::AuthorizationOrphaned { .. } if is_settled_by_collection(before) => undone(before),
        Event::SettlementCompleted { amount, tx_hash, .. } => completed(before, *amount, *tx_hash),
        Event::SettlementOrphaned { .. } | Event::SettlementFailed { .. } => undone(before),
        Event::RefundRequested { refund, .. } if refund.source == Vault::Psp => {
            vec![of_refund(before, refund, PostingKind::Reserved, Account::Psp, Account::InFlight)]
        }
        Event::RefundSent { refund_id, .. } => {
            let refund = before.refunds.iter().find(|refund| refund.id == *refund_id);
            refund
                .filter(|refund| refund.state != RefundState::Sent)
                .map(|refund| sent(before, refund))
                .into_iter()
                .collect()
        }
        Event::RefundFailed { refund_id, .. } => {
            let refund = before.refunds.iter().find(|refund| refund.id == *refund_id);
            refund.and_then(|refund| given_back(before, refund)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn received(payment: &Payment, transfer: &Transfer) -> Posting {
    Posting {
        kind: PostingKind::Received,
        debit: Account::External,
        credit: Account::Payment,
        asset: payment.asset_of(transfer),
        amount: transfer.amount,
        reference: transfer.key.tx_hash.to_string(),
    }
}

/// Posts a changed entry of a transfer. Reverses the posting of the old entry if it no longer applies, and posts dust to
/// `Suspense`, so that vaults and ledger agree.
fn posted_entry(before: &Payment, new: &Transfer) -> Vec<Posting> {
    let old = before.transfer(new.key);
    let posted = |t: &&Transfer| matches!(t.status, TransferStatus::Final | TransferStatus::Ignored);
    let mut postings = Vec::new();
    if old.is_some_and(|old| posted(&old) && old.status == new.status) {
        return postings;
    }
    if let Some(old) = old.filter(posted) {
        postings.push(reversed(entered(before, old)));
    }
    if posted(&new) {
        postings.push(entered(before, new));
    }
    postings.retain(|posting| posting.amount > Amount::ZERO);
    postings
}

fn entered(payment: &Payment, transfer: &Transfer) -> Posting {
    let posting = received(payment, transfer);
    if transfer.status == TransferStatus::Ignored {
        Posting { kind: PostingKind::Dust, credit: Account::Suspense, ..posting }
    } else {
        posting
    }
}

/// Posts a settlement that was not executed before, or that was executed by another transaction with another amount.
fn completed(before: &Payment, amount: Option<Amount>, tx_hash: Hash32) -> Vec<Posting> {
    let Some(settlement) = before.settlement.as_deref() else { return Vec::new() };
    let Some(amount) = amount else {
        let is_new = settlement.state != SettlementState::Settled;
        return if is_new { settled(before, settlement, tx_hash) } else { Vec::new() };
    };
    let mut carried = settlement.clone();
    carried.carry(amount, before.terms.fee_bps);
    undone(before).into_iter().chain(settled(before, &carried, tx_hash)).collect()
}

/// Reverses the postings of the settlement, if it was executed.
fn undone(before: &Payment) -> Vec<Posting> {
    let done = before.settlement.as_deref().filter(|settlement| settlement.state == SettlementState::Settled);
    let posted = done.and_then(|settlement| Some(settled(before, settlement, settlement.tx_hash?)));
    posted.into_iter().flatten().map(reversed).collect()
}

/// Posts the shares of a settlement, or the delivery of a transfer.
fn settled(payment: &Payment, settlement: &Settlement, tx_hash: Hash32) -> Vec<Posting> {
    let share = |kind, credit, amount| Posting {
        kind,
        debit: Account::Payment,
        credit,
        asset: payment.asset(),
        amount,
        reference: tx_hash.to_string(),
    };
    let mut shares = match payment.terms.purpose {
        Purpose::Transfer { .. } => vec![share(PostingKind::Delivered, Account::External, settlement.amount)],
        Purpose::PayIn => vec![
            share(PostingKind::Settled, Account::Psp, settlement.psp_amount),
            share(PostingKind::Fee, Account::Treasury, settlement.treasury_fee),
        ],
    };
    shares.retain(|share| share.amount > Amount::ZERO);
    shares
}

fn reversed(posting: Posting) -> Posting {
    let kind = match posting.kind {
        PostingKind::Received => PostingKind::Orphaned,
        PostingKind::Dust => PostingKind::DustOrphaned,
        PostingKind::Settled => PostingKind::SettlementReversed,
        PostingKind::Fee => PostingKind::FeeReversed,
        PostingKind::Delivered => PostingKind::DeliveryReversed,
        other => other,
    };
    Posting { kind, debit: posting.credit, credit: posting.debit, ..posting }
}

/// Posts a sent refund. The PSP's vault reserved the funds before, unless the refund had failed.
fn sent(payment: &Payment, refund: &Refund) -> Posting {
    let from = match (refund.source, refund.state) {
        (Vault::Payment, _) => Account::Payment,
        (Vault::Psp, RefundState::Pending) => Account::InFlight,
        (Vault::Psp, _) => Account::Psp,
    };
    of_refund(payment, refund, PostingKind::Sent, from, Account::External)
}

/// Posts a refund that will not be sent, or whose outbound transfer was orphaned.
fn given_back(payment: &Payment, refund: &Refund) -> Option<Posting> {
    let (kind, debit, credit) = match (refund.state, refund.source) {
        (RefundState::Pending, Vault::Psp) => (PostingKind::Returned, Account::InFlight, Account::Psp),
        (RefundState::Sent, Vault::Psp) => (PostingKind::SentReversed, Account::External, Account::Psp),
        (RefundState::Sent, Vault::Payment) => (PostingKind::SentReversed, Account::External, Account::Payment),
        (RefundState::Pending, Vault::Payment) | (RefundState::Failed, _) => return None,
    };
    Some(of_refund(payment, refund, kind, debit, credit))
}

fn of_refund(payment: &Payment, refund: &Refund, kind: PostingKind, debit: Account, credit: Account) -> Posting {
    let asset = refund.asset.unwrap_or_else(|| payment.asset());
    Posting { kind, debit, credit, asset, amount: refund.amount, reference: refund.id.to_string() }
}
