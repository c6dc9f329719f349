//! Decisions about payments by signature. The settler owns an authorization from `Queued` on: until it reports the end,
//! nothing else pays the payment.

use super::refuse_unless_fact;
use crate::ids::OperationId;
use crate::money::Amount;
use crate::payment::authorization::{
    AUTHORIZATION_WINDOW_MIN_SECS, AUTHORIZATIONS_MAX, Authorization, AuthorizationEnd, AuthorizationFailure,
    AuthorizationKind, AuthorizationOrder, AuthorizationState,
};
use crate::payment::command::CollectedBlock;
use crate::payment::decide::judge;
use crate::payment::event::Event;
use crate::payment::evolve::evolve;
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::{FailureReason, Status};
use crate::payment::transfer::{Decision, Transfer, TransferKey, TransferStatus, TransferToken, Verdict};
use crate::time::Timestamp;

/// Accepts an authorization. The signature was verified before.
pub(super) fn request(payment: &Payment, order: &AuthorizationOrder, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let is_receive = order.kind == AuthorizationKind::Receive;
    if payment.awaits_chain() {
        return Err(Rejection::ChainNotChosen);
    }
    if payment.authorization.as_deref().is_some_and(Authorization::is_unfinished) {
        return Err(Rejection::AuthorizationInProgress);
    }
    if !is_open(payment, order.kind) || payment.deadline_passed() || !payment.terms.purpose.is_pay_in() {
        return Err(Rejection::PaymentNotPending(payment.status));
    }
    if is_receive && payment.settlement.is_some() {
        return Err(Rejection::SettlementInProgress);
    }
    if judge::awaits_in_time(payment) {
        return Err(Rejection::TransferPending);
    }
    let due = payment.amount_due();
    if order.value != due || is_receive && due != payment.terms.amount {
        return Err(Rejection::AmountNotDue { due, authorized: order.value });
    }
    if payment.authorizations >= AUTHORIZATIONS_MAX {
        return Err(Rejection::AuthorizationsExhausted);
    }
    if order.attempt != payment.next_attempt() {
        return Err(Rejection::AuthorizationOutdated);
    }
    if order.valid_before > payment.expires_at {
        return Err(Rejection::AuthorizationTooLong(payment.expires_at));
    }
    if order.valid_before < now.plus_secs(AUTHORIZATION_WINDOW_MIN_SECS) {
        return Err(Rejection::AuthorizationTooShort);
    }
    Ok(vec![Event::AuthorizationAccepted { authorization: Box::new(Authorization::new(order, now)) }])
}

/// Returns true if the payment can still be paid by this kind of authorization.
fn is_open(payment: &Payment, kind: AuthorizationKind) -> bool {
    payment.status == Status::Pending || kind == AuthorizationKind::Transfer && payment.is_completable()
}

/// Applies a screening result about the payer, or the decision of a person on a review.
pub(super) fn screen(
    payment: &Payment,
    operation: OperationId,
    verdict: &Verdict,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    let waiting = payment.authorization.as_deref().filter(|it| it.operation == operation && it.is_screened_now());
    let in_review = waiting.is_some_and(|it| it.state == AuthorizationState::Review);
    if waiting.is_none() || verdict.by_operator && !in_review {
        return refuse_unless_fact(verdict, Rejection::NotInReview);
    }
    if in_review && verdict.decision == Decision::Review {
        return Ok(Vec::new());
    }
    let mut events = vec![Event::AuthorizationScreened { verdict: Box::new(verdict.clone()) }];
    if verdict.decision == Decision::Block {
        events.push(ended(AuthorizationEnd::Failed(AuthorizationFailure::PayerBlocked), 0, None, now));
    }
    Ok(events)
}

fn ended(end: AuthorizationEnd, revision: u32, detail: Option<String>, at: Timestamp) -> Event {
    Event::AuthorizationEnded { end, revision, detail, at }
}

/// Returns what follows from the state for an authorization that the settler does not have yet: it is queued once the
/// payer is allowed, and ends with the payment.
pub(super) fn judge(payment: &Payment, now: Timestamp) -> Option<Event> {
    let authorization = payment.authorization.as_deref().filter(|it| it.is_screened_now())?;
    if !is_open(payment, authorization.kind) {
        let is_expired = payment.failure_reason == Some(FailureReason::Expired);
        let not_due = AuthorizationEnd::Failed(AuthorizationFailure::NotDue);
        return Some(ended(if is_expired { AuthorizationEnd::Expired } else { not_due }, 0, None, now));
    }
    if authorization.decision() != Some(Decision::Allow) || payment.deadline_passed() || judge::awaits_in_time(payment)
    {
        return None;
    }
    let is_due = payment.amount_due() == authorization.value;
    let is_whole = payment.settlement.is_none() && payment.amount_due() == payment.terms.amount;
    Some(if is_due && (is_whole || authorization.kind == AuthorizationKind::Transfer) {
        Event::AuthorizationQueued
    } else {
        ended(AuthorizationEnd::Failed(AuthorizationFailure::NotDue), 0, None, now)
    })
}

fn newer(payment: &Payment, operation: OperationId, revision: u32) -> Option<&Authorization> {
    let authorization = payment.authorization.as_deref()?;
    (authorization.operation == operation && authorization.revision < revision).then_some(authorization)
}

/// The authorization is collected, and final by the tier. A receipt counts and settles at once.
pub(super) fn complete(
    payment: &Payment,
    operation: OperationId,
    revision: u32,
    block: &CollectedBlock,
    now: Timestamp,
) -> Vec<Event> {
    let Some(authorization) = newer(payment, operation, revision) else { return Vec::new() };
    // An earlier block had it, and the message about its end was lost.
    let mut events = if authorization.state == AuthorizationState::Final {
        orphaned(payment, authorization, revision, now)
    } else {
        Vec::new()
    };
    let is_receive = authorization.kind == AuthorizationKind::Receive;
    let transfer = is_receive.then(|| Box::new(transfer(payment, authorization, block)));
    let key = transfer.as_ref().map(|transfer| transfer.key);
    events.push(Event::AuthorizationCollected { revision, tx_hash: block.tx_hash, transfer });
    let after = events.iter().fold(payment.clone(), evolve);
    // It counts before all others: its money is already with the PSP.
    if let Some(key) = key.filter(|_| after.status == Status::Pending) {
        events.push(Event::TransferCounted { key, excess: false, at: now });
    }
    events
}

fn transfer(payment: &Payment, authorization: &Authorization, block: &CollectedBlock) -> Transfer {
    let CollectedBlock { tx_hash, block_hash, block, log_index } = *block;
    Transfer {
        key: TransferKey { chain: payment.terms.chain, block_hash, tx_hash, log_index },
        revision: 1,
        block,
        first_block_time: block.time,
        from: authorization.from,
        token: TransferToken::Right,
        amount: authorization.value,
        status: TransferStatus::Final,
        verdict: authorization.verdict.clone(),
        counted: false,
        excess: false,
    }
}

/// The authorization will not be collected: at finality, its nonce was used otherwise, or its end has passed.
pub(super) fn fail(
    payment: &Payment,
    operation: OperationId,
    revision: u32,
    (end, detail): (AuthorizationEnd, &str),
    now: Timestamp,
) -> Vec<Event> {
    let Some(authorization) = newer(payment, operation, revision) else { return Vec::new() };
    let mut events = match authorization.state {
        AuthorizationState::Queued => Vec::new(),
        AuthorizationState::Final => orphaned(payment, authorization, revision, now),
        _ => return Vec::new(),
    };
    events.push(ended(end, revision, Some(detail.to_owned()), now));
    events
}

/// The block that collected it is no longer in the chain. The settler submits it again.
pub(super) fn orphan(payment: &Payment, operation: OperationId, revision: u32, now: Timestamp) -> Vec<Event> {
    newer(payment, operation, revision).map_or_else(Vec::new, |it| orphaned(payment, it, revision, now))
}

fn orphaned(payment: &Payment, authorization: &Authorization, revision: u32, now: Timestamp) -> Vec<Event> {
    let mut events = vec![Event::AuthorizationOrphaned { revision }];
    let of_it = |t: &&Transfer| {
        Some(t.key.tx_hash) == authorization.tx_hash
            && t.from == authorization.from
            && t.status == TransferStatus::Final
    };
    let collected = payment.transfers.iter().find(of_it).filter(|_| authorization.kind == AuthorizationKind::Receive);
    if let Some(collected) = collected {
        let gone = Transfer { status: TransferStatus::Orphaned, counted: false, excess: false, ..collected.clone() };
        events.push(Event::TransferRecorded { transfer: Box::new(gone), remine_until: None });
        let reopened = collected.counted && !collected.excess && super::reopens(payment);
        if collected.counted {
            events.push(Event::Reorged { key: collected.key, reopened, at: now });
        }
    }
    events
}

/// Returns true if an authorization may still pay the payment: the settler has it, or its transfer is not listed yet.
pub(super) fn is_awaited(payment: &Payment) -> bool {
    payment.authorization.as_deref().is_some_and(|authorization| match authorization.state {
        AuthorizationState::Queued => true,
        AuthorizationState::Final => {
            let listed = |t: &Transfer| Some(t.key.tx_hash) == authorization.tx_hash;
            authorization.kind == AuthorizationKind::Transfer && !payment.transfers.iter().any(listed)
        }
        _ => false,
    })
}

/// Returns true if the settler has an authorization that pays the PSP directly. Nothing else counts meanwhile.
pub(super) fn holds_back(payment: &Payment) -> bool {
    let held = |it: &Authorization| it.state == AuthorizationState::Queued && it.kind == AuthorizationKind::Receive;
    payment.authorization.as_deref().is_some_and(held)
}

impl Payment {
    /// Returns the number of the next authorization, to which its nonce commits.
    pub fn next_attempt(&self) -> u16 {
        self.authorizations.saturating_add(1)
    }

    /// Returns the amount that a new authorization of this kind must have; `None` if the payment takes none now.
    pub fn amount_to_authorize(&self, kind: AuthorizationKind) -> Option<Amount> {
        let order = AuthorizationOrder {
            operation: OperationId::settlement_of(self.id()),
            kind,
            attempt: self.next_attempt(),
            from: self.terms.wallet,
            value: self.amount_due(),
            valid_before: self.expires_at,
            nonce: crate::chain::Hash32([0; 32]),
        };
        // The length of the window is judged when it is requested.
        let at = self.expires_at.plus_secs(-AUTHORIZATION_WINDOW_MIN_SECS);
        request(self, &order, at).ok().map(|_| order.value)
    }
}
