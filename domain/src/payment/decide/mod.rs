//! Decides the events that follow from a command: first the events of the command itself, then the events that follow
//! from the new state (`judge`), until there are no more.
//!
//! Outdated or known facts lead to no events. Only commands of people are rejected.

mod authorization;
mod judge;
mod payer_request;
mod refund;

use super::command::{Command, TransferFinality};
use super::event::Event;
use super::evolve::evolve;
use super::money_out::{Funds, Requester, Settlement, SettlementState};
use super::rejection::Rejection;
use super::state::{Outage, Payment};
use super::status::{FailureReason, Label, Reason, Status};
use super::transfer::{
    Decision, ObservedTransfer, Presence, Transfer, TransferKey, TransferStatus, TransferToken, Verdict, has_room,
    room_for_more,
};
use crate::chain::{Address, Chain};
use crate::ids::OperationId;
use crate::money::Amount;
use crate::time::Timestamp;
use judge::confirmation;

pub(crate) use judge::is_judged;

/// Time that the payment waits for an orphaned in-time transfer to be mined again. Sequencers and proposers need
/// seconds, so this is generous.
pub const REMINE_GRACE_SECS: i64 = 600;
/// Delay before a failed settlement is retried: 30 s, four times longer after each failure, at most 1 h.
pub const RETRY_FIRST_SECS: i64 = 30;
/// Longest retry delay.
pub const RETRY_MAX_SECS: i64 = 3_600;

/// Returns the events that follow from `command` at `now` (the clock of the service); empty if the command is outdated
/// or already known.
pub fn decide(payment: &Payment, command: &Command, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let own = match command {
        Command::ObserveTransfer(observed) => observe(payment, observed, now),
        Command::ChooseChain { chain } => choose_chain(payment, *chain, now)?,
        Command::TakeIn { observed } => list_set_aside(payment, observed, now)?,
        Command::FinaliseTransfers(reached) => finalise(payment, reached),
        Command::ScreenTransfer { key, verdict } => screen(payment, *key, verdict)?,
        Command::PassDeadline { chain_time } => pass_deadline(payment, *chain_time),
        Command::MoveDeadline { outage, from, to } => {
            move_deadline(payment, Outage { id: *outage, from: *from, to: *to }, now)
        }
        Command::Cancel => cancel(payment, now)?,
        Command::Accept { expected_received } => accept(payment, *expected_received, now)?,
        Command::RequestRefund(order) => refund::request(payment, order, now)?,
        Command::AskRefund(ask) => payer_request::ask(payment, ask, now)?,
        Command::DeclineRefundRequest { request_id } => payer_request::decline(payment, *request_id, now)?,
        Command::DecideRefund { refund_id, approve } => refund::decide(payment, *refund_id, *approve, now)?,
        Command::ScreenRefund { refund_id, verdict } => refund::screen(payment, *refund_id, verdict, now)?,
        Command::CompleteRefund { refund_id, revision, tx_hash } => {
            refund::complete(payment, *refund_id, *revision, *tx_hash, now)
        }
        Command::FailRefund { refund_id, revision, reason } => {
            refund::fail(payment, *refund_id, *revision, reason, now)
        }
        Command::RetrySettlement { by } => retry(payment, *by)?,
        Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time } => {
            let frozen = payment.settlement.as_deref().map(|settlement| settlement.amount);
            let completed = Event::SettlementCompleted {
                revision: *revision,
                amount: Some(*amount).filter(|amount| Some(*amount) != frozen),
                tx_hash: *tx_hash,
                block_time: *block_time,
            };
            complete(payment, *operation, *revision, completed, now)
        }
        Command::FailSettlement { operation, revision, reason } => fail(payment, *operation, *revision, reason, now),
        Command::OrphanSettlement { operation, revision } => orphan(payment, *operation, *revision, now),
        Command::Authorize(order) => authorization::request(payment, order, now)?,
        Command::ScreenAuthorization { operation, verdict } => {
            authorization::screen(payment, *operation, verdict, now)?
        }
        Command::CompleteAuthorization { operation, revision, block } => {
            authorization::complete(payment, *operation, *revision, block, now)
        }
        Command::FailAuthorization { operation, revision, end, detail } => {
            authorization::fail(payment, *operation, *revision, (*end, detail), now)
        }
        Command::OrphanAuthorization { operation, revision } => {
            authorization::orphan(payment, *operation, *revision, now)
        }
    };
    if own.is_empty() { Ok(own) } else { Ok(with_consequences(payment, own, now)) }
}

fn with_consequences(payment: &Payment, mut events: Vec<Event>, now: Timestamp) -> Vec<Event> {
    let mut scratch = events.iter().fold(payment.clone(), evolve);
    let mut fresh = judge::Fresh::of(payment);
    loop {
        let next = judge::judge(&scratch, &mut fresh, now);
        if next.is_empty() {
            return events;
        }
        scratch = next.iter().fold(scratch, evolve);
        events.extend(next);
    }
}

/// Handles a block at or after the deadline. It is recorded once per deadline and evaluated afterwards, because an
/// in-time transfer may still wait for finality or screening.
fn pass_deadline(payment: &Payment, chain_time: Timestamp) -> Vec<Event> {
    let first = payment.passed_at.is_none() && chain_time >= payment.expires_at;
    let decisive = chain_time >= payment.deadline() && !payment.deadline_passed();
    let open = payment.status == Status::Pending || payment.is_completable();
    if open && (first || decisive) { vec![Event::DeadlinePassed { chain_time }] } else { Vec::new() }
}

fn move_deadline(payment: &Payment, outage: Outage, now: Timestamp) -> Vec<Event> {
    if !payment.awaits_deadline() {
        return Vec::new();
    }
    let others = payment.outages.iter().filter(|other| other.id != outage.id).copied();
    let expires_at = deadline_after(payment, others.chain([outage]).collect());
    if expires_at <= payment.expires_at {
        return Vec::new();
    }
    let Outage { id, from, to } = outage;
    vec![Event::DeadlineMoved { outage: id, from, to, expires_at, at: now }]
}

/// Returns the original deadline, extended by each outage that began before it. Time in two outages counts once.
fn deadline_after(payment: &Payment, mut outages: Vec<Outage>) -> Timestamp {
    outages.sort_by_key(|outage| (outage.from, outage.to));
    let mut counted_to = payment.terms.created_at;
    let mut deadline = payment.first_expires_at;
    for outage in outages {
        let from = outage.from.max(counted_to);
        if from < deadline && from < outage.to {
            deadline = deadline.plus_millis(outage.to.millis_since(from));
            counted_to = outage.to;
        }
    }
    deadline
}

/// Returns the time of the next automatic retry of a settlement with this number of failures.
pub(super) fn retry_at(failures: u32, now: Timestamp) -> Timestamp {
    let factor = 4_i64.saturating_pow(failures);
    now.plus_secs(RETRY_FIRST_SECS.saturating_mul(factor).min(RETRY_MAX_SECS))
}

/// Fixes the chain that the payer chose. The same choice again changes nothing.
fn choose_chain(payment: &Payment, chain: Chain, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if !payment.awaits_chain() {
        return if payment.terms.chain == chain {
            Ok(Vec::new())
        } else {
            Err(Rejection::ChainFixed(payment.terms.chain))
        };
    }
    if payment.status != Status::Pending || payment.deadline_passed() {
        return Err(Rejection::PaymentNotPending(payment.status));
    }
    if !payment.terms.offered().iter().any(|offer| offer.chain == chain) {
        return Err(Rejection::ChainNotOffered(chain));
    }
    Ok(vec![Event::ChainChosen { chain, at: now }])
}

/// A transfer of the due token on an offered chain chooses the chain, however late it is.
fn chosen_by(payment: &Payment, observed: &ObservedTransfer, now: Timestamp) -> Option<Event> {
    let is_offered = |chain: Chain, token_address: Address| {
        payment.terms.offered().iter().any(|offer| (offer.chain, offer.token_address) == (chain, token_address))
    };
    let chooses = payment.awaits_chain()
        && observed.presence == Presence::Present
        && is_offered(observed.key.chain, observed.token_address)
        && !payment.is_dust_amount(observed.amount);
    chooses.then_some(Event::ChainChosen { chain: observed.key.chain, at: now })
}

/// Applies the watcher's row, unless it is outdated, or new and beyond the list limits.
fn observe(payment: &Payment, observed: &ObservedTransfer, now: Timestamp) -> Vec<Event> {
    if let Some(chosen) = chosen_by(payment, observed, now) {
        let recorded = observe(&evolve(payment.clone(), &chosen), observed, now);
        return if recorded.is_empty() { recorded } else { [vec![chosen], recorded].concat() };
    }
    let known = payment.transfer(observed.key);
    if known.is_some_and(|known| known.revision >= observed.revision) {
        return Vec::new();
    }
    let transfer = entry(payment, known, observed);
    if known.is_none() && !has_room(payment, &transfer) {
        return Vec::new();
    }
    let lost = known.is_some_and(|known| known.counted) && !transfer.counted;
    let missing = transfer.status == TransferStatus::Orphaned && transfer.is_right() && payment.is_in_time(&transfer);
    // The clock of the chain may be ahead of ours.
    let latest = payment.passed_at.unwrap_or(now).max(now).max(observed.block.time);
    let remine_until = missing.then(|| latest.plus_secs(REMINE_GRACE_SECS));
    let mut events = vec![Event::TransferRecorded { transfer: Box::new(transfer), remine_until }];
    if lost {
        let excess = known.is_some_and(|known| known.excess);
        events.push(Event::Reorged { key: observed.key, reopened: !excess && reopens(payment), at: now });
    }
    events
}

/// Lists transfers that were set aside, up to the limit, and processes them normally from then on. `observed` names
/// each transfer once.
fn list_set_aside(payment: &Payment, observed: &[ObservedTransfer], now: Timestamp) -> Result<Vec<Event>, Rejection> {
    let is_aside =
        |observed: &&ObservedTransfer| observed.presence == Presence::Present && payment.sets_aside(observed);
    let mut aside: Vec<&ObservedTransfer> = observed.iter().filter(is_aside).collect();
    if aside.is_empty() {
        return Err(Rejection::NothingSetAside);
    }
    aside.truncate(room_for_more(payment));
    if aside.is_empty() {
        return Err(Rejection::ListFull);
    }
    let chosen = aside.iter().find_map(|observed| chosen_by(payment, observed, now));
    let payment = &chosen.iter().fold(payment.clone(), evolve);
    let record = |observed: &ObservedTransfer| {
        let transfer = Box::new(entry(payment, None, observed));
        Event::TransferRecorded { transfer, remine_until: None }
    };
    Ok(chosen.into_iter().chain(aside.into_iter().map(record)).collect())
}

/// Returns true if losing a counted transfer returns the payment to pending. If the PSP has decided, or the payment is
/// late, only the amounts change.
fn reopens(payment: &Payment) -> bool {
    match payment.status {
        Status::Confirmed | Status::Settled => true,
        Status::Mismatched => !payment.labels.contains(Label::Late) && !payment.was_sent_back(),
        Status::Pending | Status::Failed => false,
    }
}

fn entry(payment: &Payment, known: Option<&Transfer>, observed: &ObservedTransfer) -> Transfer {
    let first_seen = observed.first_block_time.unwrap_or(observed.block.time).min(observed.block.time);
    let siblings = || payment.transfers.iter().filter(|sibling| sibling.is_of_transaction(observed.key));
    let mut transfer = Transfer {
        key: observed.key,
        revision: observed.revision,
        block: observed.block,
        first_block_time: siblings().map(|sibling| sibling.first_block_time).fold(first_seen, Timestamp::min),
        from: observed.from,
        token: classify(payment, observed),
        amount: observed.amount,
        status: TransferStatus::Seen,
        verdict: None,
        counted: false,
        excess: false,
    };
    if observed.presence == Presence::Orphaned {
        transfer.status = TransferStatus::Orphaned;
    } else if payment.is_dust(&transfer) {
        transfer.status = TransferStatus::Ignored;
    } else if let Some(known) = known.filter(|known| known.is_present()) {
        (transfer.status, transfer.counted, transfer.excess) = (known.status, known.counted, known.excess);
    }
    transfer.verdict = match known {
        Some(known) => known.verdict.clone(),
        // The same money in another block: its screening stands. If there were several such transfers with different
        // verdicts, the strictest applies.
        None => siblings()
            .filter(|t| t.key.block_hash != transfer.key.block_hash)
            .filter(|t| (t.from, t.token, t.amount) == (transfer.from, transfer.token, transfer.amount))
            .filter_map(|sibling| sibling.verdict.clone())
            .max_by_key(|verdict| (verdict.decision, verdict.by_operator)),
    };
    transfer
}

fn classify(payment: &Payment, observed: &ObservedTransfer) -> TransferToken {
    let address = observed.token_address;
    if observed.key.chain == payment.terms.chain && address == payment.terms.token_address {
        return TransferToken::Right;
    }
    match observed.token {
        Some(token) => TransferToken::Other { token, address },
        None => TransferToken::LookAlike { address },
    }
}

/// Marks transfers as final, in the order of the chain: those whose current revision reached the finality that the total
/// received so far requires.
fn finalise(payment: &Payment, reached: &[TransferFinality]) -> Vec<Event> {
    let required = payment.required_finality();
    let is_final = |transfer: &&Transfer| {
        let of_it = |r: &TransferFinality| r.key == transfer.key && r.revision == transfer.revision;
        transfer.status == TransferStatus::Seen && reached.iter().any(|r| of_it(r) && r.reached >= required)
    };
    let mut now_final: Vec<&Transfer> = payment.transfers.iter().filter(is_final).collect();
    now_final.sort_by_key(|transfer| transfer.position());
    now_final.iter().map(|transfer| Event::TransferFinalised { key: transfer.key }).collect()
}

/// Applies a verdict, unless an existing verdict outranks it.
fn screen(payment: &Payment, key: TransferKey, verdict: &Verdict) -> Result<Vec<Event>, Rejection> {
    let refuse = |rejection| refuse_unless_fact(verdict, rejection);
    let Some(transfer) = payment.transfer(key) else { return refuse(Rejection::UnknownTransfer) };
    if payment.is_dust(transfer) || transfer.counted {
        return refuse(Rejection::NotInReview);
    }
    if transfer.decision() == Some(verdict.decision) && (!verdict.by_operator || stands(transfer)) {
        return Ok(Vec::new());
    }
    if outranks(payment, transfer, verdict) {
        Ok(vec![Event::TransferScreened { key, verdict: Box::new(verdict.clone()) }])
    } else {
        refuse(Rejection::NotInReview)
    }
}

/// Rejects the decision of a person. A verdict of a provider is a fact, and only changes nothing.
fn refuse_unless_fact(verdict: &Verdict, rejection: Rejection) -> Result<Vec<Event>, Rejection> {
    if verdict.by_operator { Err(rejection) } else { Ok(Vec::new()) }
}

/// Returns true if the verdict of a transfer is a decision, not a pending review.
fn stands(transfer: &Transfer) -> bool {
    matches!(transfer.decision(), Some(Decision::Allow | Decision::Block))
}

/// Returns true if a new verdict outranks the existing one. A person outranks a provider. Among providers the strictest
/// wins, except that `review` is only pending. Only a person can release blocked funds, only while the payment is
/// pending, and only if none of them were refunded.
fn outranks(payment: &Payment, transfer: &Transfer, new: &Verdict) -> bool {
    let Some(old) = transfer.verdict.as_deref() else { return true };
    match (old.decision, new.decision) {
        (_, Decision::Review) => false,
        (Decision::Review, _) => true,
        (Decision::Block, _) => {
            let untouched = payment.refunds.iter().all(|r| r.funds != Funds::Blocked);
            new.by_operator && payment.status == Status::Pending && untouched
        }
        (Decision::Allow, _) => new.by_operator || !old.by_operator,
    }
}

/// Cancels a pending payment without transfers. Dust is ignored, because otherwise a stranger could keep the payment
/// open.
fn cancel(payment: &Payment, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if payment.status != Status::Pending {
        return Err(Rejection::PaymentNotPending(payment.status));
    }
    if payment.transfers.iter().any(|transfer| !payment.is_dust(transfer)) {
        return Err(Rejection::TransferRecorded);
    }
    if authorization::is_awaited(payment) {
        return Err(Rejection::AuthorizationInProgress);
    }
    Ok(vec![Event::Failed { reason: FailureReason::Cancelled, at: now }])
}

/// Confirms a mismatched payment for its net amount.
fn accept(payment: &Payment, expected_received: Option<Amount>, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    if payment.status != Status::Mismatched {
        let blocked = payment.failure_reason == Some(FailureReason::KytBlocked);
        let refusal = Rejection::PaymentNotMismatched(payment.status);
        return Err(if blocked { Rejection::FundsBlocked } else { refusal });
    }
    let received = payment.amount_received();
    if let Some(expected) = expected_received.filter(|expected| *expected != received) {
        return Err(Rejection::ReceivedMoved { expected, received });
    }
    if payment.settleable().is_zero() {
        let blocked = !payment.blocked_held().is_zero();
        return Err(if blocked { Rejection::FundsBlocked } else { Rejection::NothingToAccept });
    }
    Ok(vec![confirmation(payment, payment.settleable(), payment.labels, Reason::Accepted, now)])
}

fn newer(payment: &Payment, operation: OperationId, revision: u32) -> Option<&Settlement> {
    let settlement = payment.settlement.as_deref()?;
    (settlement.operation == operation && settlement.revision < revision).then_some(settlement)
}

/// The chain executed the settlement. A confirmed payment becomes settled (`judge`). A settled payment whose settlement
/// was orphaned is settled again. Any other payment records it for a later confirmation.
fn complete(payment: &Payment, operation: OperationId, revision: u32, completed: Event, now: Timestamp) -> Vec<Event> {
    match newer(payment, operation, revision) {
        None => Vec::new(),
        Some(settlement) if payment.status == Status::Settled && settlement.state != SettlementState::Settled => {
            vec![completed, Event::Settled { at: now }]
        }
        Some(_) => vec![completed],
    }
}

/// The settlement reverted for a permanent reason. The PSP is notified the first time, and whenever a person requested
/// the attempt.
fn fail(payment: &Payment, operation: OperationId, revision: u32, reason: &str, now: Timestamp) -> Vec<Event> {
    let Some(settlement) = newer(payment, operation, revision) else { return Vec::new() };
    let under_way =
        matches!(payment.status, Status::Confirmed | Status::Settled) && settlement.state != SettlementState::Withdrawn;
    let announced = under_way && (settlement.failures == 0 || settlement.retry_demanded);
    let retry_at = retry_at(settlement.failures, now);
    vec![Event::SettlementFailed { revision, reason: reason.to_owned(), retry_at, announced, at: now }]
}

/// The settlement is no longer in the chain.
fn orphan(payment: &Payment, operation: OperationId, revision: u32, now: Timestamp) -> Vec<Event> {
    let Some(settlement) = newer(payment, operation, revision) else { return Vec::new() };
    let was_settled = settlement.state == SettlementState::Settled;
    vec![Event::SettlementOrphaned { revision, was_settled, at: now }]
}

/// Retries a failed settlement, on request or on schedule.
fn retry(payment: &Payment, by: Requester) -> Result<Vec<Event>, Rejection> {
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
