//! Numbered invariants. They must hold after every commit: a transition that violates one is not returned, so it cannot
//! be written. Here are those of a payment; `outbound` and `customer` own theirs.

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::OperationId;
use crate::ledger::Asset;
use crate::money::{Amount, split_fee};
use crate::payment::{
    AddressProof, AuthorizationState, Decision, FailureReason, Funds, Label, Payment, Reason, Refund,
    RefundRequestState, RefundState, Requester, SettlementState, Status, Transfer, TransferKey, TransferStatus, Vault,
    derived_labels, is_judged,
};
use crate::{customer, outbound};

/// One invariant of an aggregate.
pub struct Invariant<A: 'static> {
    /// Number, such as `PAY-1`. Numbers never change.
    pub id: &'static str,
    /// Condition that must hold.
    pub name: &'static str,
    pub(crate) holds: fn(&A) -> bool,
}

/// A violated invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant.
    pub id: &'static str,
    /// Condition that must hold.
    pub name: &'static str,
}

/// The change would violate invariants, which is a defect. Nothing may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violated(pub Vec<Violation>);

impl fmt::Display for Violated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the change would violate ")?;
        for (position, Violation { id, name }) in self.0.iter().enumerate() {
            write!(f, "{}{id} ({name})", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Violated {}

/// Checks `aggregate` against `invariants`.
///
/// # Errors
///
/// The violated ones.
pub fn check<A>(invariants: &[Invariant<A>], aggregate: &A) -> Result<(), Violated> {
    let broken = invariants.iter().filter(|invariant| !(invariant.holds)(aggregate));
    let violations: Vec<_> = broken.map(|Invariant { id, name, .. }| Violation { id, name }).collect();
    if violations.is_empty() { Ok(()) } else { Err(Violated(violations)) }
}

/// Numbers of all invariants of all aggregates.
pub fn ids() -> impl Iterator<Item = &'static str> {
    let payments = INVARIANTS.iter().map(|invariant| invariant.id);
    let outbound = outbound::INVARIANTS.iter().map(|invariant| invariant.id);
    payments.chain(outbound).chain(customer::INVARIANTS.iter().map(|invariant| invariant.id))
}

/// Every invariant of a payment, in the order of the numbers.
pub const INVARIANTS: &[Invariant<Payment>] = &[
    Invariant { id: "PAY-1", name: "psp_amount + treasury_fee == settlement.amount", holds: adds_up },
    Invariant { id: "PAY-2", name: "the settlement is split by the fee of the payment", holds: split_as_agreed },
    Invariant { id: "PAY-3", name: "only final, allowed transfers of the due token count", holds: only_clean_counts },
    Invariant { id: "PAY-4", name: "a transfer is listed once", holds: listed_once },
    Invariant { id: "PAY-5", name: "a transaction counts in only one block", holds: one_block },
    Invariant { id: "PAY-6", name: "excess counts, and only after the freeze", holds: excess_after_freeze },
    Invariant { id: "PAY-7", name: "failure_reason is set exactly while failed", holds: failure_has_reason },
    Invariant { id: "PAY-8", name: "a confirmed or settled payment has its one settlement", holds: has_settlement },
    Invariant { id: "PAY-9", name: "only confirmed or settled payments are settling", holds: settles_confirmed },
    Invariant { id: "PAY-10", name: "the wallet covers the settlement", holds: settlement_covered },
    Invariant { id: "PAY-11", name: "refunds do not exceed the amount received", holds: refunds_covered },
    Invariant { id: "PAY-12", name: "refunds of blocked funds do not exceed them", holds: blocked_covered },
    Invariant { id: "PAY-13", name: "the history ends with the current status", holds: history_is_current },
    Invariant { id: "PAY-14", name: "labels match the state", holds: labels_agree },
    Invariant { id: "PAY-15", name: "an expired or cancelled payment has no counted transfer", holds: empty_handed },
    Invariant { id: "PAY-16", name: "deadlines only move later", holds: deadline_moves_on },
    Invariant { id: "PAY-17", name: "a settlement has a retry time exactly while failed", holds: retries },
    Invariant { id: "PAY-18", name: "a pending payment counts only in-time transfers", holds: pending_in_time },
    Invariant { id: "PAY-19", name: "operation ids are distinct", holds: operations_distinct },
    Invariant { id: "PAY-20", name: "no further event follows from the state", holds: is_judged },
    Invariant { id: "PAY-21", name: "only an authorization of an allowed payer is collected", holds: payer_is_allowed },
    Invariant {
        id: "PAY-22",
        name: "a payer's request is approved exactly if it has its refund",
        holds: requests_answered,
    },
    Invariant { id: "PAY-23", name: "a payer starts only refunds to the signing sender", holds: payer_signed },
];

fn adds_up(payment: &Payment) -> bool {
    let settlement = payment.settlement.as_deref();
    settlement.is_none_or(|s| s.psp_amount.checked_add(s.treasury_fee) == Some(s.amount))
}

fn split_as_agreed(payment: &Payment) -> bool {
    payment.settlement.as_deref().is_none_or(|settlement| {
        let split = split_fee(settlement.amount, payment.terms.fee_bps);
        settlement.amount > Amount::ZERO
            && (settlement.psp_amount, settlement.treasury_fee) == (split.psp_amount, split.treasury_fee)
    })
}

fn only_clean_counts(payment: &Payment) -> bool {
    payment.transfers.iter().filter(|t| t.counted).all(|t| {
        t.is_right()
            && t.status == TransferStatus::Final
            && t.decision() == Some(Decision::Allow)
            && !payment.is_dust(t)
    })
}

fn listed_once(payment: &Payment) -> bool {
    let keys: BTreeSet<_> = payment.transfers.iter().map(|transfer| transfer.key).collect();
    keys.len() == payment.transfers.len()
}

fn one_block(payment: &Payment) -> bool {
    let counted: Vec<_> = payment.transfers.iter().filter(|transfer| transfer.counted).collect();
    let same_block = |a: TransferKey, b: TransferKey| a.tx_hash != b.tx_hash || a.block_hash == b.block_hash;
    counted.iter().all(|a| counted.iter().all(|b| same_block(a.key, b.key)))
}

fn excess_after_freeze(payment: &Payment) -> bool {
    let frozen = matches!(payment.status, Status::Confirmed | Status::Settled)
        || payment.failure_reason == Some(FailureReason::SettlementFailed);
    let has_surplus = payment.tolerated.is_some();
    payment.transfers.iter().filter(|transfer| transfer.excess).all(|transfer| transfer.counted && frozen)
        && (frozen || !has_surplus)
}

fn failure_has_reason(payment: &Payment) -> bool {
    (payment.status == Status::Failed) == payment.failure_reason.is_some()
}

fn has_settlement(payment: &Payment) -> bool {
    let state = payment.settlement.as_deref().map(|settlement| settlement.state);
    let fits = match payment.status {
        Status::Confirmed => state.is_some_and(|state| state != SettlementState::Settled),
        Status::Settled => matches!(state, Some(SettlementState::Settled | SettlementState::Queued)),
        Status::Pending | Status::Mismatched | Status::Failed => true,
    };
    let operation = OperationId::settlement_of(payment.id());
    fits && payment.settlement.as_deref().is_none_or(|settlement| settlement.operation == operation)
}

fn settles_confirmed(payment: &Payment) -> bool {
    let active = payment
        .settlement
        .as_deref()
        .is_some_and(|s| matches!(s.state, SettlementState::Queued | SettlementState::Failed));
    !active || matches!(payment.status, Status::Confirmed | Status::Settled)
}

/// Returns true if the chain invalidated the balances: it orphaned counted funds, or it sent a refund that had failed.
fn upset(payment: &Payment) -> bool {
    payment.history.iter().any(|entry| entry.reason == Reason::Reorged)
        || payment.refunds.iter().any(|refund| refund.state == RefundState::Sent && refund.failure.is_some())
}

fn settlement_covered(payment: &Payment) -> bool {
    let active = |state| matches!(state, SettlementState::Queued | SettlementState::Failed);
    payment.settlement.as_deref().filter(|s| active(s.state)).is_none_or(|settlement| {
        upset(payment) || payment.status != Status::Confirmed || payment.in_wallet() >= settlement.amount
    })
}

fn refunds_covered(payment: &Payment) -> bool {
    upset(payment) || payment.net_units() >= 0
}

fn blocked_covered(payment: &Payment) -> bool {
    let blocked = || payment.refunds.iter().filter(|refund| refund.funds == Funds::Blocked);
    let live = |refund: &&Refund| refund.state != RefundState::Failed;
    let covered = |asset: Option<Asset>| {
        let sent: Amount = blocked().filter(live).filter(|r| r.asset == asset).map(|r| r.amount).sum();
        let of_it = |t: &&Transfer| if t.is_right() { asset.is_none() } else { asset == Some(payment.asset_of(t)) };
        sent <= payment.transfers.iter().filter(of_it).map(|t| t.amount).sum()
    };
    upset(payment)
        || blocked().all(|refund| refund.source == Vault::Payment) && blocked().all(|refund| covered(refund.asset))
}

fn history_is_current(payment: &Payment) -> bool {
    payment.history.last().is_some_and(|entry| entry.status == payment.status)
}

fn labels_agree(payment: &Payment) -> bool {
    let both = payment.labels.contains(Label::Underpaid) && payment.labels.contains(Label::Overpaid);
    !both && derived_labels(payment, payment.labels) == payment.labels
}

fn empty_handed(payment: &Payment) -> bool {
    !matches!(payment.failure_reason, Some(FailureReason::Expired | FailureReason::Cancelled))
        || !payment.transfers.iter().any(|transfer| transfer.counted)
}

fn deadline_moves_on(payment: &Payment) -> bool {
    payment.first_expires_at <= payment.expires_at && payment.expires_at <= payment.deadline()
}

fn retries(payment: &Payment) -> bool {
    let settlement = payment.settlement.as_deref();
    settlement.is_none_or(|s| (s.state == SettlementState::Failed) == s.retry_at.is_some())
}

fn pending_in_time(payment: &Payment) -> bool {
    payment.status != Status::Pending
        || payment.transfers.iter().filter(|transfer| transfer.counted).all(|transfer| payment.is_in_time(transfer))
}

fn payer_is_allowed(payment: &Payment) -> bool {
    payment.authorization.as_deref().is_none_or(|authorization| {
        !matches!(authorization.state, AuthorizationState::Queued | AuthorizationState::Final)
            || authorization.decision() == Some(Decision::Allow)
    })
}

fn requests_answered(payment: &Payment) -> bool {
    payment.refund_requests.iter().all(|request| {
        let refund = payment.refunds.iter().find(|refund| refund.id == request.refund_id());
        let is_approved = request.state == RefundRequestState::Approved;
        is_approved == refund.is_some() && refund.is_none_or(|refund| request.is_answered_by(refund))
    })
}

fn payer_signed(payment: &Payment) -> bool {
    let by_payer = payment.refunds.iter().filter(|refund| refund.requested_by == Requester::Payer);
    by_payer.map(|refund| payment.request_of(refund.id)).all(|request| {
        request.is_some_and(|request| {
            let is_sender = payment.transfers.iter().any(|transfer| transfer.from == request.to);
            request.proof == AddressProof::Signature && is_sender
        })
    })
}

fn operations_distinct(payment: &Payment) -> bool {
    let refunds = payment.refunds.iter().map(|refund| refund.operation);
    let collected = payment.authorization.as_deref().map(|authorization| authorization.operation);
    let settled = payment.settlement.as_deref().map(|settlement| settlement.operation);
    let all: Vec<_> = refunds.chain(settled).chain(collected).collect();
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}
