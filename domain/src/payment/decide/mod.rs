//! Decides the events that follow from a command: first the events of the command itself, then the events that follow
//! from the new state (`judge`), until there are no more.
//!
//! Outdated or known facts lead to no events. Only commands of people are rejected.

mod judge;
mod people;
mod refund;
mod settlement;
mod transfers;

use super::command::Command;
use super::event::Event;
use super::evolve::evolve;
use super::rejection::Rejection;
use super::state::{Outage, Payment};
use super::status::Status;
use crate::time::Timestamp;

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
        Command::ObserveTransfer(observed) => transfers::observe(payment, observed, now),
        Command::TakeIn { observed } => transfers::list_set_aside(payment, observed)?,
        Command::FinaliseTransfer { key, revision, reached } => transfers::finalise(payment, *key, *revision, *reached),
        Command::ScreenTransfer { key, revision, verdict } => transfers::screen(payment, *key, *revision, verdict)?,
        Command::PassDeadline { chain_time } => pass_deadline(payment, *chain_time),
        Command::MoveDeadline { outage, from, to } => {
            move_deadline(payment, Outage { id: *outage, from: *from, to: *to }, now)
        }
        Command::Cancel => people::cancel(payment, now)?,
        Command::Accept { expected_received } => people::accept(payment, *expected_received, now)?,
        Command::RequestRefund { refund_id, amount, to, funds, asset, by } => {
            let request =
                refund::Request { id: *refund_id, amount: *amount, to: *to, funds: *funds, asset: *asset, by: *by };
            refund::request(payment, &request, now)?
        }
        Command::ScreenRefund { refund_id, verdict } => refund::screen(payment, *refund_id, verdict, now)?,
        Command::CompleteRefund { refund_id, revision, tx_hash } => {
            refund::complete(payment, *refund_id, *revision, *tx_hash, now)
        }
        Command::FailRefund { refund_id, revision, reason } => {
            refund::fail(payment, *refund_id, *revision, reason, now)
        }
        Command::RetrySettlement { by } => settlement::retry(payment, *by)?,
        Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time } => {
            let frozen = payment.settlement.as_deref().map(|settlement| settlement.amount);
            let completed = Event::SettlementCompleted {
                revision: *revision,
                amount: Some(*amount).filter(|amount| Some(*amount) != frozen),
                tx_hash: *tx_hash,
                block_time: *block_time,
            };
            settlement::complete(payment, *operation, *revision, completed, now)
        }
        Command::FailSettlement { operation, revision, reason } => {
            settlement::fail(payment, *operation, *revision, reason, now)
        }
        Command::OrphanSettlement { operation, revision } => settlement::orphan(payment, *operation, *revision, now),
    };
    if own.is_empty() { Ok(own) } else { Ok(with_consequences(payment, own, now)) }
}

fn with_consequences(payment: &Payment, mut events: Vec<Event>, now: Timestamp) -> Vec<Event> {
    let mut scratch = events.iter().fold(payment.clone(), evolve);
    let mut fresh = judge::Fresh::default();
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
