//! Refunds: which funds can be refunded, from which vault, and the consequences of the outcome.

use crate::chain::{Address, Hash32};
use crate::ids::RefundId;
use crate::ledger::Asset;
use crate::money::Amount;
use crate::payment::command::RefundOrder;
use crate::payment::event::Event;
use crate::payment::evolve::evolve;
use crate::payment::money_out::{
    ADDRESS_BLOCKED, Funds, NOT_APPROVED, Refund, RefundLimit, RefundState, Requester, SettlementState, Vault,
};
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::{FailureReason, Status};
use crate::payment::transfer::{Decision, Transfer, TransferStatus, Verdict};
use crate::time::Timestamp;

/// Amount and source of a refund.
struct Share {
    amount: Amount,
    source: Vault,
    withdraws_settlement: bool,
}

/// Accepts a refund of a person or of the service. A refund of a payer needs a request (`payer_request`).
pub(super) fn request(payment: &Payment, request: &RefundOrder, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if payment.refunds.iter().all(|refund| refund.id != request.id) {
        super::payer_request::check_answer(payment, request)?;
    }
    accept(payment, request, now)
}

/// Accepts a refund and reserves its amount. A repeated request changes nothing.
pub(super) fn accept(payment: &Payment, request: &RefundOrder, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if let Some(known) = payment.refunds.iter().find(|refund| refund.id == request.id) {
        let same = request.amount.is_none_or(|amount| amount == known.amount)
            && request.to.is_none_or(|to| to == known.to)
            && request.funds == known.funds
            && request.asset == known.asset;
        return if same { Ok(Vec::new()) } else { Err(Rejection::RefundExists) };
    }
    let share = match request.funds {
        Funds::Blocked => blocked_share(payment, request)?,
        Funds::Received => received_share(payment, request.amount)?,
        Funds::Misdirected => misdirected_share(payment, request)?,
    };
    let to = recipient(payment, request)?;
    let refund = Refund {
        source: share.source,
        funds: request.funds,
        asset: request.asset.filter(|_| request.funds != Funds::Received),
        limit: limit(payment, request, to),
        reference: request.reference.clone(),
        metadata: request.metadata.clone(),
        ..Refund::new(request.id, share.amount, to, request.by, now)
    };
    let withdraws_settlement = share.withdraws_settlement;
    Ok(vec![Event::RefundRequested { refund: Box::new(refund), withdraws_settlement }])
}

/// Returns the limit of a refund to `to`. Funds may go back to the only account that sent them, if it is a plain one: no
/// stolen key can direct them elsewhere. The operator and the policies of the PSP have no limit.
fn limit(payment: &Payment, request: &RefundOrder, to: Address) -> RefundLimit {
    let asset = request.asset.filter(|_| request.funds != Funds::Received);
    let is_back = request.plain == Some(to) && payment.sole_sender(asset) == Some(to);
    match request.by {
        Requester::Operator | Requester::Schedule => RefundLimit::None,
        Requester::Psp | Requester::Payer if is_back => RefundLimit::None,
        Requester::Psp | Requester::Payer if request.hold => RefundLimit::Approval,
        Requester::Psp | Requester::Payer => RefundLimit::Elsewhere,
    }
}

fn within(requested: Option<Amount>, refundable: Amount) -> Result<Amount, Rejection> {
    let amount = requested.unwrap_or(refundable);
    if amount.units() <= 0 || amount > refundable {
        return Err(Rejection::RefundTooLarge { requested: amount, refundable });
    }
    Ok(amount)
}

fn blocked_share(payment: &Payment, request: &RefundOrder) -> Result<Share, Rejection> {
    if request.by != Requester::Operator {
        return Err(Rejection::OperatorOnly);
    }
    let held = match request.asset {
        None => payment.blocked_held(),
        Some(asset) => {
            let of_it = payment.blocked_misdirected().into_iter().find(|(held, _)| *held == asset);
            of_it.map_or(Amount::ZERO, |(_, amount)| amount)
        }
    };
    if held.is_zero() {
        return Err(Rejection::NothingToRefund);
    }
    let amount = within(request.amount, held)?;
    Ok(Share { amount, source: Vault::Payment, withdraws_settlement: false })
}

fn misdirected_share(payment: &Payment, request: &RefundOrder) -> Result<Share, Rejection> {
    let asset = request.asset.ok_or(Rejection::NothingToRefund)?;
    let held = payment.misdirected(asset);
    if held.is_zero() {
        let of_it = |t: &&Transfer| !t.is_right() && t.is_present() && payment.asset_of(t) == asset;
        let blocked = payment.transfers.iter().filter(of_it).any(Transfer::is_blocked);
        return Err(if blocked { Rejection::FundsBlocked } else { Rejection::NothingToRefund });
    }
    let amount = within(request.amount, held)?;
    Ok(Share { amount, source: Vault::Payment, withdraws_settlement: false })
}

fn received_share(payment: &Payment, requested: Option<Amount>) -> Result<Share, Rejection> {
    let blocked = !payment.blocked_held().is_zero();
    let net = payment.refundable();
    if net.is_zero() {
        return Err(match payment.status {
            _ if blocked || payment.failure_reason == Some(FailureReason::KytBlocked) => Rejection::FundsBlocked,
            Status::Pending => Rejection::PaymentPending,
            _ => Rejection::NothingToRefund,
        });
    }
    let settlement = payment.settlement.as_deref();
    let in_wallet = payment.in_wallet().min(net);
    match (payment.status, settlement.map(|settlement| (settlement.state, settlement.amount))) {
        (Status::Confirmed | Status::Settled, Some((SettlementState::Queued, _))) => {
            Err(Rejection::SettlementInProgress)
        }
        (Status::Confirmed, Some((SettlementState::Failed, frozen))) => {
            let amount = within(requested, in_wallet)?;
            let excess = in_wallet.saturating_sub(frozen);
            let all = amount == in_wallet;
            if !all && amount > excess {
                return Err(Rejection::RefundMustBeAll { all: in_wallet, excess });
            }
            Ok(Share { amount, source: Vault::Payment, withdraws_settlement: all })
        }
        _ => from_either_vault(requested, in_wallet, net),
    }
}

/// Chooses the vault. Settled funds are in the PSP's vault, other funds in the payment's wallet; a refund uses only one
/// of them.
fn from_either_vault(requested: Option<Amount>, in_wallet: Amount, net: Amount) -> Result<Share, Rejection> {
    let in_vault = net.saturating_sub(in_wallet);
    let amount = within(Some(requested.unwrap_or(if in_wallet.is_zero() { in_vault } else { in_wallet })), net)?;
    let source = if amount <= in_wallet {
        Vault::Payment
    } else if amount <= in_vault {
        Vault::Psp
    } else {
        return Err(Rejection::RefundSpansVaults(in_wallet));
    };
    Ok(Share { amount, source, withdraws_settlement: false })
}

fn recipient(payment: &Payment, request: &RefundOrder) -> Result<Address, Rejection> {
    let sender = || if request.funds == Funds::Received { sole_sender(payment) } else { None };
    let to = request.to.or_else(sender).ok_or(Rejection::RefundAddressRequired)?;
    check_recipient(payment, to, request.asset).map(|()| to)
}

/// Refuses addresses that cannot receive this token.
pub(super) fn check_recipient(payment: &Payment, to: Address, asset: Option<Asset>) -> Result<(), Rejection> {
    let token = asset.map_or(payment.terms.token_address, |asset| asset.address);
    let useless = [Address([0; 20]), payment.terms.wallet, payment.terms.token_address, token];
    if useless.contains(&to) { Err(Rejection::RefundAddressInvalid) } else { Ok(()) }
}

/// Returns the single plain account that sent everything, if the PSP allows refunds to senders.
pub(super) fn sole_sender(payment: &Payment) -> Option<Address> {
    let arrived = |t: &&Transfer| t.is_right() && t.status == TransferStatus::Final;
    let plain = |t: &Transfer| t.verdict.as_deref().is_some_and(|verdict| verdict.plain_sender == Some(true));
    let all_plain = payment.transfers.iter().filter(arrived).all(plain);
    payment.sole_sender(None).filter(|_| payment.terms.refund_to_sender && all_plain)
}

/// Applies a screening result for the address of a waiting refund: `allow` sends it, `block` fails it. A decision of a
/// person ends a review, and nothing else.
pub(super) fn screen(
    payment: &Payment,
    id: RefundId,
    verdict: &Verdict,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    let waiting = payment.refunds.iter().find(|refund| refund.id == id && refund.awaits_screening());
    let in_review = waiting.is_some_and(|refund| refund.decision() == Some(Decision::Review));
    match waiting {
        None if verdict.by_operator => return Err(Rejection::NotInReview),
        Some(_) if verdict.by_operator && !in_review => return Err(Rejection::NotInReview),
        Some(_) if !(in_review && verdict.decision == Decision::Review) => {}
        _ => return Ok(Vec::new()),
    }
    let mut events = vec![Event::RefundScreened { refund_id: id, verdict: Box::new(verdict.clone()) }];
    if verdict.decision == Decision::Block {
        events.extend(given_up(payment, id, 0, ADDRESS_BLOCKED, now));
    }
    Ok(events)
}

/// Applies the operator's decision about a refund above a limit. A rejected refund returns its amount.
pub(super) fn decide(payment: &Payment, id: RefundId, approve: bool, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if !payment.refunds.iter().any(|refund| refund.id == id && refund.awaits_approval()) {
        return Err(Rejection::NotAwaitingApproval);
    }
    Ok(if approve {
        vec![Event::RefundApproved { refund_id: id, at: now }]
    } else {
        given_up(payment, id, 0, NOT_APPROVED, now)
    })
}

/// Returns the refund if `revision` is newer than its applied revision. The newest revision wins, in any order of
/// arrival.
fn newer(payment: &Payment, id: RefundId, revision: u32) -> Option<&Refund> {
    payment.refunds.iter().find(|refund| refund.id == id && refund.revision < revision)
}

/// The outbound transfer is final. This overrides an earlier failure report, because the funds have left.
pub(super) fn complete(payment: &Payment, id: RefundId, revision: u32, tx_hash: Hash32, now: Timestamp) -> Vec<Event> {
    let Some(refund) = newer(payment, id, revision).filter(|refund| refund.state != RefundState::Sent) else {
        return Vec::new();
    };
    let sent = Event::RefundSent { refund_id: id, revision, tx_hash, at: now };
    let mut events = Vec::with_capacity(2);
    if refund.state == RefundState::Pending && ends_settlement(payment, refund) {
        events.push(Event::Failed { reason: FailureReason::SettlementFailed, at: now });
    }
    events.push(sent);
    events
}

/// Returns true if this is the last refund that a withdrawn settlement waits for. The failure is announced before the
/// refund.
fn ends_settlement(payment: &Payment, refund: &Refund) -> bool {
    let from_wallet = |r: &&Refund| r.funds == Funds::Received && r.source == Vault::Payment;
    let others = payment.refunds.iter().filter(from_wallet).filter(|r| r.state == RefundState::Pending);
    payment.status == Status::Confirmed
        && payment.settlement.as_deref().is_some_and(|s| s.state == SettlementState::Withdrawn)
        && from_wallet(&refund)
        && others.count() == 1
}

/// The chain permanently rejected the refund: a pending one, or a final one that was orphaned.
pub(super) fn fail(payment: &Payment, id: RefundId, revision: u32, reason: &str, now: Timestamp) -> Vec<Event> {
    match newer(payment, id, revision) {
        Some(refund) if refund.state != RefundState::Failed => given_up(payment, id, revision, reason, now),
        _ => Vec::new(),
    }
}

/// Fails the refund: releases its reservation and resumes a settlement that it had withdrawn.
fn given_up(payment: &Payment, id: RefundId, revision: u32, reason: &str, now: Timestamp) -> Vec<Event> {
    let failed =
        |retry_at| Event::RefundFailed { refund_id: id, revision, reason: reason.to_owned(), retry_at, at: now };
    let after = evolve(payment.clone(), &failed(None));
    let withdrawn = after.settlement.as_deref().filter(|s| s.state == SettlementState::Withdrawn);
    let retry_at = withdrawn
        .filter(|settlement| after.status == Status::Confirmed && after.in_wallet() >= settlement.amount)
        .map(|settlement| super::retry_at(settlement.failures, now));
    vec![failed(retry_at)]
}
