//! Applies events literally, without any decision. Derived values (some labels, the sequence) are computed here after
//! every event, so that a replay ends in the same state.

use super::announce::announced;
use super::authorization::{Authorization, AuthorizationEnd, AuthorizationState};
use super::event::Event;
use super::money_out::{Funds, Refund, RefundState, Requester, Settlement, SettlementState, Vault};
use super::payer_request::{PayerRequest, RefundRequestState};
use super::state::{Outage, Payment};
use super::status::{FailureReason, HistoryEntry, Label, Labels, Reason, Status};
use super::terms::OverpaymentPolicy;
use super::transfer::{Decision, Transfer, TransferKey, TransferStatus};
use crate::chain::Chain;
use crate::ids::{OperationId, RefundId};
use crate::money::{Amount, split_fee};
use crate::time::Timestamp;

/// Returns the payment after a commit at time `at`, to which its events were applied: with the next version.
pub(super) fn commit(mut payment: Payment, at: Timestamp) -> Payment {
    payment.version += 1;
    payment.updated_at = at;
    payment
}

/// Returns the payment after one event. The version changes per commit, not per event.
#[must_use]
pub fn evolve(mut payment: Payment, event: &Event) -> Payment {
    apply(&mut payment, event);
    payment.labels = derived_labels(&payment, payment.labels);
    let announcements = announced(&payment, event).len();
    payment.sequence += u32::try_from(announcements).unwrap_or(0);
    payment
}

fn apply(payment: &mut Payment, event: &Event) {
    match event {
        Event::Initiated { terms, expires_at } => {
            *payment = Payment { version: payment.version, ..Payment::new((**terms).clone(), *expires_at) };
        }
        Event::ChainChosen { chain, at } => choose_chain(payment, *chain, *at),
        Event::TransferRecorded { transfer, remine_until } => {
            // The label is set even if the transfer had not counted, when there is nothing else to undo.
            if transfer.status == TransferStatus::Orphaned && transfer.is_right() && !payment.is_dust(transfer) {
                payment.labels = payment.labels.with(Label::Reorged);
            }
            record(payment, transfer);
            payment.remine_until = payment.remine_until.max(*remine_until);
        }
        Event::TransferFinalised { key } => {
            change_transfer(payment, *key, |transfer| transfer.status = TransferStatus::Final);
        }
        Event::TransferScreened { key, verdict } => {
            change_transfer(payment, *key, |transfer| transfer.verdict = Some(verdict.clone()));
        }
        Event::TransferCounted { key, excess, at } => {
            change_transfer(payment, *key, |transfer| (transfer.counted, transfer.excess) = (true, *excess));
            if *excess {
                note(payment, payment.status, Reason::MoreReceived, *at);
            } else {
                payment.counted_undecided = true;
            }
        }
        Event::Reorged { reopened, at, .. } => reorganise(payment, *reopened, *at),
        Event::DeadlinePassed { chain_time } => payment.passed_at = payment.passed_at.max(Some(*chain_time)),
        Event::DeadlineMoved { outage, from, to, expires_at, at } => {
            let outage = Outage { id: *outage, from: *from, to: *to };
            payment.outages.retain(|known| known.id != outage.id);
            payment.outages.push(outage);
            payment.expires_at = *expires_at;
            note(payment, payment.status, Reason::DeadlineMoved, *at);
        }
        Event::Confirmed { amount, psp_amount, treasury_fee, labels, reason, at } => {
            confirm(payment, *amount, *psp_amount, *treasury_fee);
            payment.labels = *labels;
            if *reason == Reason::Paid && payment.terms.overpayment != OverpaymentPolicy::Accept {
                let surplus = payment.amount_received().saturating_sub(payment.terms.amount);
                payment.tolerated = Some(surplus).filter(|surplus| !surplus.is_zero());
            }
            enter(payment, Status::Confirmed, *reason, *at);
        }
        Event::Mismatched { labels, reason, at } => {
            payment.labels = *labels;
            enter(payment, Status::Mismatched, *reason, *at);
        }
        Event::Failed { reason, at } => {
            enter(payment, Status::Failed, history_reason(*reason), *at);
            payment.failure_reason = Some(*reason);
        }
        Event::Settled { at } => enter(payment, Status::Settled, Reason::Settled, *at),
        Event::SettlementCompleted { .. }
        | Event::SettlementFailed { .. }
        | Event::SettlementRetried { .. }
        | Event::SettlementOrphaned { .. } => apply_to_settlement(payment, event),
        Event::RefundRequested { refund, withdraws_settlement } => {
            let of_it = |request: &&mut PayerRequest| request.refund_id() == refund.id;
            if let Some(request) = payment.refund_requests.iter_mut().find(of_it) {
                (request.state, request.decided_at) = (RefundRequestState::Approved, Some(refund.requested_at));
            }
            payment.refunds.push((**refund).clone());
            if *withdraws_settlement && let Some(settlement) = payment.settlement.as_deref_mut() {
                withdraw(settlement);
            }
        }
        Event::AuthorizationAccepted { authorization } => {
            payment.authorizations = payment.authorizations.saturating_add(1);
            payment.authorization = Some(authorization.clone());
        }
        Event::AuthorizationScreened { .. }
        | Event::AuthorizationQueued
        | Event::AuthorizationEnded { .. }
        | Event::AuthorizationCollected { .. }
        | Event::AuthorizationOrphaned { .. } => apply_to_authorization(payment, event),
        Event::RefundAsked { request } => payment.refund_requests.push((**request).clone()),
        Event::RefundRequestDeclined { request_id, at } => {
            if let Some(request) = payment.refund_requests.iter_mut().find(|request| request.id == *request_id) {
                (request.state, request.decided_at) = (RefundRequestState::Declined, Some(*at));
            }
        }
        Event::RefundScreened { refund_id, verdict } => {
            if let Some(refund) = payment.refunds.iter_mut().find(|refund| refund.id == *refund_id) {
                refund.verdict = Some(verdict.clone());
            }
        }
        Event::RefundApproved { refund_id, at } => {
            if let Some(refund) = payment.refunds.iter_mut().find(|refund| refund.id == *refund_id) {
                refund.approved_at = Some(*at);
            }
        }
        Event::RefundSent { refund_id, revision, tx_hash, at } => {
            finish_refund(payment, *refund_id, *revision, *at, |refund| {
                (refund.state, refund.tx_hash) = (RefundState::Sent, Some(*tx_hash));
            });
        }
        Event::RefundFailed { refund_id, revision, reason, retry_at, at } => {
            finish_refund(payment, *refund_id, *revision, *at, |refund| {
                (refund.state, refund.tx_hash) = (RefundState::Failed, None);
                refund.failure = Some(reason.clone());
            });
            if let (Some(retry_at), Some(settlement)) = (retry_at, payment.settlement.as_deref_mut()) {
                settlement.state = SettlementState::Failed;
                settlement.retry_at = Some(*retry_at);
            }
        }
    }
}

fn apply_to_settlement(payment: &mut Payment, event: &Event) {
    let (status, settleable, fee_bps) = (payment.status, payment.settleable(), payment.terms.fee_bps);
    let is_promised = !payment.refunded(Funds::Received, Some(Vault::Payment)).is_zero();
    let Some(settlement) = payment.settlement.as_deref_mut() else { return };
    match event {
        Event::SettlementCompleted { revision, amount, tx_hash, block_time } => {
            if let Some(amount) = *amount {
                settlement.carry(amount, fee_bps);
            }
            settlement.state = SettlementState::Settled;
            settlement.revision = *revision;
            settlement.tx_hash = Some(*tx_hash);
            settlement.settled_at = Some(*block_time);
            (settlement.failures, settlement.failure, settlement.retry_at) = (0, None, None);
            settlement.retry_demanded = false;
        }
        Event::SettlementFailed { revision, reason, retry_at, at, .. } => {
            settlement.revision = *revision;
            if !matches!(status, Status::Confirmed | Status::Settled) {
                return withdraw(settlement);
            }
            if settlement.state == SettlementState::Withdrawn {
                return;
            }
            settlement.state = SettlementState::Failed;
            settlement.failures = settlement.failures.saturating_add(1);
            settlement.failure = Some(reason.clone());
            settlement.retry_at = Some(*retry_at);
            settlement.retry_demanded = false;
            (settlement.tx_hash, settlement.settled_at) = (None, None);
            // The settlement was orphaned after its funds had been promised as a refund. The refund keeps them.
            if settleable < settlement.amount && is_promised {
                withdraw(settlement);
            } else if settleable < settlement.amount && !settleable.is_zero() {
                // An older transaction moved more than is left now. The next attempt moves what is left.
                settlement.carry(settleable, fee_bps);
            }
            enter(payment, Status::Confirmed, Reason::SettlementFailed, *at);
        }
        Event::SettlementRetried { by } => {
            settlement.state = SettlementState::Queued;
            settlement.retry_at = None;
            settlement.retry_demanded = *by != Requester::Schedule;
        }
        Event::SettlementOrphaned { revision, was_settled, at } => {
            settlement.revision = *revision;
            if !was_settled {
                return;
            }
            (settlement.tx_hash, settlement.settled_at) = (None, None);
            payment.labels = payment.labels.with(Label::Reorged);
            if status == Status::Settled {
                settlement.state = SettlementState::Queued;
                note(payment, status, Reason::Reorged, *at);
            } else {
                withdraw(settlement);
            }
        }
        _ => {}
    }
}

fn apply_to_authorization(payment: &mut Payment, event: &Event) {
    if let Event::AuthorizationCollected { transfer: Some(transfer), .. } = event {
        payment.settlement = collected_settlement(payment, transfer).map(Box::new).or(payment.settlement.take());
        record(payment, transfer);
    }
    if matches!(event, Event::AuthorizationOrphaned { .. }) && is_settled_by_collection(payment) {
        payment.settlement = None;
    }
    let Some(authorization) = payment.authorization.as_deref_mut() else { return };
    match event {
        Event::AuthorizationScreened { verdict } => {
            authorization.verdict = Some(verdict.clone());
            if verdict.decision == Decision::Review {
                authorization.state = AuthorizationState::Review;
            }
        }
        Event::AuthorizationQueued => authorization.state = AuthorizationState::Queued,
        Event::AuthorizationEnded { end, revision, detail, .. } => {
            authorization.revision = authorization.revision.max(*revision);
            (authorization.state, authorization.failure) = match end {
                AuthorizationEnd::Failed(failure) => (AuthorizationState::Failed, Some(*failure)),
                AuthorizationEnd::Expired => (AuthorizationState::Expired, None),
            };
            authorization.detail.clone_from(detail);
        }
        Event::AuthorizationCollected { revision, tx_hash, .. } => {
            authorization.revision = *revision;
            authorization.state = AuthorizationState::Final;
            authorization.tx_hash = Some(*tx_hash);
            (authorization.failure, authorization.detail) = (None, None);
        }
        Event::AuthorizationOrphaned { revision } => {
            authorization.revision = *revision;
            authorization.state = AuthorizationState::Queued;
            authorization.tx_hash = None;
        }
        _ => {}
    }
}

/// Returns the settlement that a collection made; `None` if the payment already has one.
pub(super) fn collected_settlement(payment: &Payment, transfer: &Transfer) -> Option<Settlement> {
    if payment.settlement.is_some() {
        return None;
    }
    let shares = split_fee(transfer.amount, payment.terms.fee_bps);
    let mut settlement =
        new_settlement(payment, transfer.amount, shares.psp_amount, shares.treasury_fee, SettlementState::Settled);
    settlement.tx_hash = Some(transfer.key.tx_hash);
    settlement.settled_at = Some(transfer.block.time);
    Some(settlement)
}

/// Returns true if the collection of the authorization made the settlement.
pub(super) fn is_settled_by_collection(payment: &Payment) -> bool {
    let collected_in = payment.authorization.as_deref().and_then(|authorization| authorization.tx_hash);
    let settled = |s: &Settlement| s.state == SettlementState::Settled && s.tx_hash == collected_in && s.revision == 0;
    collected_in.is_some() && payment.settlement.as_deref().is_some_and(settled)
}

fn new_settlement(
    payment: &Payment,
    amount: Amount,
    psp_amount: Amount,
    treasury_fee: Amount,
    state: SettlementState,
) -> Settlement {
    Settlement {
        operation: OperationId::settlement_of(payment.id()),
        amount,
        psp_amount,
        treasury_fee,
        state,
        revision: 0,
        tx_hash: None,
        settled_at: None,
        failures: 0,
        failure: None,
        retry_at: None,
        retry_demanded: false,
    }
}

/// Keeps one entry per key, and one first block time per transaction.
fn record(payment: &mut Payment, transfer: &Transfer) {
    match payment.transfers.iter_mut().find(|known| known.key == transfer.key) {
        Some(known) => *known = transfer.clone(),
        None => payment.transfers.push(transfer.clone()),
    }
    for sibling in payment.transfers.iter_mut().filter(|sibling| sibling.is_of_transaction(transfer.key)) {
        sibling.first_block_time = sibling.first_block_time.min(transfer.first_block_time);
    }
}

fn change_transfer(payment: &mut Payment, key: TransferKey, change: impl FnOnce(&mut Transfer)) {
    if let Some(transfer) = payment.transfers.iter_mut().find(|transfer| transfer.key == key) {
        change(transfer);
    }
}

/// Applies a reorganisation. If the payment is reopened, the frozen amount is released, only in-time transfers count,
/// and the settlement is withdrawn unless the chain has already executed it.
fn reorganise(payment: &mut Payment, reopened: bool, at: Timestamp) {
    payment.labels = payment.labels.with(Label::Reorged);
    if !reopened {
        let too_much = payment.settleable() > payment.terms.amount;
        let overpaid = payment.labels.contains(Label::Overpaid);
        if payment.status == Status::Mismatched {
            payment.labels = payment.labels.set(Label::Overpaid, overpaid && too_much);
        }
        return note(payment, payment.status, Reason::Reorged, at);
    }
    for label in [Label::Underpaid, Label::Overpaid, Label::Late] {
        payment.labels = payment.labels.without(label);
    }
    payment.tolerated = None;
    let expires_at = payment.expires_at;
    for transfer in &mut payment.transfers {
        transfer.excess = false;
        transfer.counted &= transfer.first_block_time < expires_at;
    }
    if let Some(settlement) = payment.settlement.as_deref_mut()
        && settlement.state != SettlementState::Settled
    {
        withdraw(settlement);
    }
    enter(payment, Status::Pending, Reason::Reorged, at);
}

fn withdraw(settlement: &mut Settlement) {
    settlement.state = SettlementState::Withdrawn;
    settlement.retry_at = None;
}

/// Fixes the chain, with its token and finality. Its own outages move the deadline from now on.
fn choose_chain(payment: &mut Payment, chain: Chain, at: Timestamp) {
    let Some(offer) = payment.terms.offered().iter().find(|offer| offer.chain == chain).cloned() else { return };
    (payment.terms.chain, payment.terms.token_address, payment.terms.finality) =
        (offer.chain, offer.token_address, offer.finality);
    payment.chain_chosen_at = Some(at);
    payment.first_expires_at = payment.expires_at;
    payment.outages.clear();
    note(payment, payment.status, Reason::ChainChosen, at);
}

/// Confirms with the one settlement operation: an existing settlement is queued again; one that the chain executed
/// stays settled.
fn confirm(payment: &mut Payment, amount: Amount, psp_amount: Amount, treasury_fee: Amount) {
    let fresh = new_settlement(payment, amount, psp_amount, treasury_fee, SettlementState::Queued);
    let settlement = payment.settlement.get_or_insert_with(|| Box::new(fresh));
    if settlement.state != SettlementState::Settled {
        (settlement.amount, settlement.psp_amount, settlement.treasury_fee) = (amount, psp_amount, treasury_fee);
        settlement.state = SettlementState::Queued;
        (settlement.failures, settlement.failure, settlement.retry_at) = (0, None, None);
        settlement.retry_demanded = false;
    }
}

fn finish_refund(payment: &mut Payment, id: RefundId, revision: u32, at: Timestamp, change: impl FnOnce(&mut Refund)) {
    if let Some(refund) = payment.refunds.iter_mut().find(|refund| refund.id == id) {
        refund.revision = refund.revision.max(revision);
        refund.finished_at = Some(at);
        change(refund);
    }
}

fn enter(payment: &mut Payment, status: Status, reason: Reason, at: Timestamp) {
    payment.status = status;
    payment.failure_reason = None;
    payment.counted_undecided = false;
    note(payment, status, reason, at);
}

fn note(payment: &mut Payment, status: Status, reason: Reason, at: Timestamp) {
    payment.history.push(HistoryEntry { status, at, reason });
}

fn history_reason(reason: FailureReason) -> Reason {
    match reason {
        FailureReason::Expired => Reason::Expired,
        FailureReason::KytBlocked => Reason::KytBlocked,
        FailureReason::SettlementFailed => Reason::SettlementFailed,
        FailureReason::Cancelled => Reason::Cancelled,
    }
}

/// Returns `labels` with the derived labels recomputed.
pub(crate) fn derived_labels(payment: &Payment, labels: Labels) -> Labels {
    let any = |test: &dyn Fn(&Transfer) -> bool| payment.transfers.iter().any(test);
    let chain = payment.terms.chain;
    let failing = payment.settlement.as_ref().is_some_and(|s| s.failures > 0)
        && (payment.status == Status::Confirmed || payment.failure_reason == Some(FailureReason::SettlementFailed));
    labels
        .set(Label::Multiple, payment.transfers.iter().filter(|t| t.counted).count() > 1)
        .set(Label::Excess, any(&|t| t.excess) || payment.tolerated.is_some())
        .set(Label::WrongToken, any(&|t| is_held(t) && is_wrong_token(payment, t)))
        .set(Label::WrongChain, any(&|t| is_held(t) && t.key.chain != chain))
        .set(Label::InReview, in_review(payment))
        .set(Label::FundsBlocked, any(&|t| t.is_present() && t.is_blocked()))
        .set(Label::SettlementFailed, failing)
        .set(Label::RefundApproval, payment.refunds.iter().any(Refund::awaits_approval))
        .set(Label::Authorized, payment.authorization.as_deref().is_some_and(Authorization::is_valid))
}

/// Returns true if a transfer, the address of a refund, or the payer of an authorization waits for a decision of the operator.
fn in_review(payment: &Payment) -> bool {
    let review = Some(Decision::Review);
    payment.transfers.iter().any(|transfer| transfer.is_present() && transfer.decision() == review)
        || payment.refunds.iter().any(|refund| refund.awaits_screening() && refund.decision() == review)
        || payment.authorization.as_deref().is_some_and(|it| it.state == AuthorizationState::Review)
}

fn is_held(transfer: &Transfer) -> bool {
    transfer.status == TransferStatus::Final
}

/// On another chain, the same token has another address. It is the right token on the wrong chain.
fn is_wrong_token(payment: &Payment, transfer: &Transfer) -> bool {
    use super::transfer::TransferToken::{LookAlike, Other, Right};
    match transfer.token {
        Right => false,
        LookAlike { .. } => true,
        Other { token, .. } => transfer.key.chain == payment.terms.chain || token != payment.terms.token,
    }
}
