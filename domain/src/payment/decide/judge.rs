//! Evaluates the state of a payment: which transfers count now, and the events that follow. Implements the "what
//! counts" table of the interface. Depends only on the state, not on the order of the facts.

use super::authorization;
use crate::ids::RefundId;
use crate::money::{Amount, Split, split_fee};
use crate::payment::event::Event;
use crate::payment::money_out::{Funds, Refund, RefundState, Requester, SettlementState, Vault};
use crate::payment::state::Payment;
use crate::payment::status::{FailureReason, Label, Labels, Reason, Status};
use crate::payment::terms::OverpaymentPolicy;
use crate::payment::transfer::{Decision, Transfer, TransferStatus};
use crate::time::Timestamp;

/// Transfers that were counted and are not yet evaluated.
#[derive(Debug)]
pub(super) struct Fresh {
    /// Any transfer was counted.
    counted: bool,
    /// A late transfer was counted.
    late: bool,
}

impl Fresh {
    /// Starts with a counted transfer that an earlier command left undecided, if there is one.
    pub(super) fn of(payment: &Payment) -> Self {
        Self { counted: payment.counted_undecided, late: false }
    }
}

/// Returns true if no further event follows from the state.
pub(crate) fn is_judged(payment: &Payment) -> bool {
    judge(payment, &mut Fresh::of(payment), payment.updated_at).is_empty()
}

/// Returns the next events that follow from the state; empty if there are none. Transfers count one by one in the order of
/// the chain, and the payment is evaluated after each.
pub(super) fn judge(payment: &Payment, fresh: &mut Fresh, now: Timestamp) -> Vec<Event> {
    if let Some(event) = authorization::judge(payment, now) {
        return vec![event];
    }
    let outcome = match payment.status {
        Status::Pending => pending(payment, now),
        Status::Mismatched => mismatched(payment, fresh, now),
        Status::Failed => failed(payment, fresh, now),
        Status::Confirmed => confirmed(payment, now),
        Status::Settled => Vec::new(),
    };
    if !outcome.is_empty() {
        *fresh = Fresh { counted: false, late: false };
        return outcome;
    }
    let Some(transfer) = next_to_count(payment) else { return Vec::new() };
    fresh.counted = true;
    fresh.late |= is_late(payment, transfer);
    vec![Event::TransferCounted { key: transfer.key, excess: is_frozen(payment), at: now }]
}

/// Returns the next transfer that counts. An earlier transfer without a decision holds it back, so that neither the order
/// of the facts nor their division into polls changes the outcome. A transfer in review, or a blocked one, holds nothing
/// back.
fn next_to_count(payment: &Payment) -> Option<&Transfer> {
    if authorization::holds_back(payment) {
        return None;
    }
    let open = |t: &&Transfer| t.is_right() && t.is_present() && !t.counted && !is_parked(payment, t);
    let decided = |t: &&Transfer| matches!(t.decision(), Some(Decision::Review | Decision::Block));
    let undecided = payment.transfers.iter().filter(open).filter(|t| t.status != TransferStatus::Final || !decided(t));
    undecided.min_by_key(|transfer| transfer.position()).filter(|transfer| counts(payment, transfer))
}

fn counts(payment: &Payment, transfer: &Transfer) -> bool {
    transfer.status == TransferStatus::Final
        && transfer.decision() == Some(Decision::Allow)
        && !is_in_two_blocks(payment, transfer)
}

/// A transaction is in only one block. If two entries of a transaction name different blocks, one of them is about to
/// be orphaned. Until then, only an entry that already counts remains counted.
fn is_in_two_blocks(payment: &Payment, transfer: &Transfer) -> bool {
    payment.transfers.iter().any(|other| {
        other.is_of_transaction(transfer.key) && other.key.block_hash != transfer.key.block_hash && other.is_present()
    })
}

/// A late transfer waits while in-time funds may still pay the payment: it neither completes nor spoils it.
fn is_parked(payment: &Payment, transfer: &Transfer) -> bool {
    let open = match payment.status {
        Status::Pending => true,
        Status::Mismatched => payment.is_completable() && (!payment.deadline_passed() || awaits_in_time(payment)),
        Status::Confirmed | Status::Settled | Status::Failed => false,
    };
    open && !payment.is_in_time(transfer)
}

fn is_late(payment: &Payment, transfer: &Transfer) -> bool {
    let judged = [Label::Underpaid, Label::Overpaid, Label::Late];
    let wrong_money_only = payment.status == Status::Mismatched
        && !payment.was_sent_back()
        && !judged.iter().any(|label| payment.labels.contains(*label));
    !payment.is_in_time(transfer) || payment.status == Status::Failed || wrong_money_only
}

/// Returns true if the amount to settle is frozen. More funds are then excess.
fn is_frozen(payment: &Payment) -> bool {
    matches!(payment.status, Status::Confirmed | Status::Settled)
        || payment.failure_reason == Some(FailureReason::SettlementFailed)
}

/// Returns true if an in-time transfer of the due token may still count.
pub(super) fn awaits_in_time(payment: &Payment) -> bool {
    let in_time = |t: &&Transfer| t.is_right() && t.is_present() && payment.is_in_time(t);
    payment.transfers.iter().filter(in_time).any(|transfer| match transfer.status {
        TransferStatus::Final => !transfer.counted && !transfer.is_blocked(),
        _ => true,
    })
}

/// Returns true if an in-time misdirected transfer is not final yet.
fn awaits_wrong(payment: &Payment) -> bool {
    let wrong = |t: &Transfer| !t.is_right() && t.status == TransferStatus::Seen && payment.is_in_time(t);
    payment.transfers.iter().any(wrong)
}

/// Returns the labels that are not derived from the rest of the state.
fn own_labels(payment: &Payment) -> Labels {
    let own = [Label::Underpaid, Label::Overpaid, Label::Late, Label::Reorged];
    own.into_iter().filter(|label| payment.labels.contains(*label)).collect()
}

/// Returns those labels that still match the current amount.
fn fitting_labels(payment: &Payment) -> Labels {
    let (labels, net) = (own_labels(payment), payment.settleable());
    let short = net < payment.terms.tolerance.least_for(payment.terms.amount);
    labels
        .set(Label::Underpaid, labels.contains(Label::Underpaid) && short)
        .set(Label::Overpaid, labels.contains(Label::Overpaid) && net > payment.terms.amount)
}

fn pending(payment: &Payment, now: Timestamp) -> Vec<Event> {
    let waits_for_remining = payment.misses_remined() && !payment.deadline_passed();
    if payment.transfers.iter().any(|transfer| transfer.counted) {
        let waits = waits_for_remining || awaits_in_time(payment) || authorization::is_awaited(payment);
        return paid(payment, now).unwrap_or_else(|| if waits { Vec::new() } else { vec![underpaid(payment, now)] });
    }
    if waits_for_remining || awaits_in_time(payment) || authorization::is_awaited(payment) {
        return Vec::new();
    }
    if blocked_in_time(payment) >= payment.terms.tolerance.least_for(payment.terms.amount) {
        return vec![Event::Failed { reason: FailureReason::KytBlocked, at: now }];
    }
    if !payment.deadline_passed() || awaits_wrong(payment) {
        return Vec::new();
    }
    let holds_wrong =
        payment.transfers.iter().any(|t| !t.is_right() && t.status == TransferStatus::Final && payment.is_in_time(t));
    if holds_wrong {
        vec![Event::Mismatched { labels: own_labels(payment), reason: Reason::WrongMoney, at: now }]
    } else {
        vec![Event::Failed { reason: FailureReason::Expired, at: now }]
    }
}

fn blocked_in_time(payment: &Payment) -> Amount {
    let blocked =
        |t: &&Transfer| t.is_right() && t.status == TransferStatus::Final && t.is_blocked() && payment.is_in_time(t);
    payment.transfers.iter().filter(blocked).map(|transfer| transfer.amount).sum()
}

fn mismatched(payment: &Payment, fresh: &Fresh, now: Timestamp) -> Vec<Event> {
    if !fresh.counted {
        return Vec::new();
    }
    if fresh.late {
        let labels = fitting_labels(payment).with(Label::Late);
        return vec![Event::Mismatched { labels, reason: Reason::Late, at: now }];
    }
    if payment.is_completable() {
        let waits = awaits_in_time(payment) || authorization::is_awaited(payment);
        return paid(payment, now).unwrap_or_else(|| if waits { Vec::new() } else { vec![underpaid(payment, now)] });
    }
    vec![Event::Mismatched { labels: fitting_labels(payment), reason: Reason::MoreReceived, at: now }]
}

fn failed(payment: &Payment, fresh: &Fresh, now: Timestamp) -> Vec<Event> {
    let revives = matches!(payment.failure_reason, Some(FailureReason::Expired | FailureReason::Cancelled));
    if !fresh.counted || !revives {
        return Vec::new();
    }
    vec![Event::Mismatched { labels: own_labels(payment).with(Label::Late), reason: Reason::Late, at: now }]
}

/// A confirmed payment becomes settled if the chain executed its settlement, and failed if the PSP refunded it instead.
fn confirmed(payment: &Payment, now: Timestamp) -> Vec<Event> {
    let Some(settlement) = payment.settlement.as_deref() else { return Vec::new() };
    let refunding = payment.refunds.iter().any(|refund| {
        refund.state == RefundState::Pending && refund.funds == Funds::Received && refund.source == Vault::Payment
    });
    match settlement.state {
        SettlementState::Settled => vec![Event::Settled { at: now }],
        SettlementState::Withdrawn if !refunding => {
            vec![Event::Failed { reason: FailureReason::SettlementFailed, at: now }]
        }
        _ => Vec::new(),
    }
}

fn underpaid(payment: &Payment, now: Timestamp) -> Event {
    let labels = own_labels(payment).with(Label::Underpaid);
    Event::Mismatched { labels, reason: Reason::Underpaid, at: now }
}

/// Returns the events of sufficient funds; `None` if the funds are not sufficient. A surplus within the tolerance is excess;
/// only the policy `accept` settles it.
fn paid(payment: &Payment, now: Timestamp) -> Option<Vec<Event>> {
    let (net, amount) = (payment.settleable(), payment.terms.amount);
    if net < payment.terms.tolerance.least_for(amount) {
        return None;
    }
    let labels = own_labels(payment).without(Label::Underpaid);
    if net <= payment.terms.overpayment_tolerance.most_for(amount) {
        let settled = if payment.terms.overpayment == OverpaymentPolicy::Accept { net } else { net.min(amount) };
        return Some(vec![confirmation(payment, settled, labels, Reason::Paid, now)]);
    }
    let labels = labels.with(Label::Overpaid);
    Some(match payment.terms.overpayment {
        OverpaymentPolicy::Hold => vec![Event::Mismatched { labels, reason: Reason::Overpaid, at: now }],
        OverpaymentPolicy::Accept => vec![confirmation(payment, net, labels, Reason::Overpaid, now)],
        OverpaymentPolicy::KeepExcess => vec![confirmation(payment, amount, labels, Reason::Overpaid, now)],
        OverpaymentPolicy::RefundExcess => {
            let mut events = vec![confirmation(payment, amount, labels, Reason::Overpaid, now)];
            events.extend(excess_refund(payment, net.saturating_sub(amount), now));
            events
        }
    })
}

/// Confirms for `amount`, or for the amount that the chain already settled, if a reorganisation put the settlement
/// first.
pub(super) fn confirmation(payment: &Payment, amount: Amount, labels: Labels, reason: Reason, now: Timestamp) -> Event {
    let done = payment.settlement.as_deref().filter(|settlement| settlement.state == SettlementState::Settled);
    let amount = done.map_or(amount, |done| done.amount);
    let Split { psp_amount, treasury_fee } = split_fee(amount, payment.terms.fee_bps);
    Event::Confirmed { amount, psp_amount, treasury_fee, labels, reason, at: now }
}

/// Creates the automatic refund of the surplus, if a single plain account sent everything. Otherwise, or if the surplus
/// is dust, it stays refundable.
fn excess_refund(payment: &Payment, amount: Amount, now: Timestamp) -> Option<Event> {
    let to = super::refund::sole_sender(payment)?;
    if amount < payment.terms.dust_floor {
        return None;
    }
    let id = RefundId::automatic(payment.id(), payment.refunds.len());
    let refund = Refund::new(id, amount, to, Requester::Schedule, now);
    Some(Event::RefundRequested { refund: Box::new(refund), withdraws_settlement: false })
}
