//! Facts about transfers: seen, mined again, orphaned, final, screened.

use super::REMINE_GRACE_SECS;
use crate::chain::Finality;
use crate::payment::event::Event;
use crate::payment::label::Label;
use crate::payment::listed::{LISTED_MAX, has_room, room_for_more};
use crate::payment::rejection::Rejection;
use crate::payment::state::Payment;
use crate::payment::status::Status;
use crate::payment::transfer::{
    Decision, ObservedTransfer, Presence, Transfer, TransferKey, TransferStatus, TransferToken, Verdict,
};
use crate::time::Timestamp;

/// Applies the watcher's row, unless it is outdated, or new and beyond the list limits. A transfer that is found in
/// another block was orphaned and mined again at the same time.
pub(super) fn observe(payment: &Payment, observed: &ObservedTransfer, now: Timestamp) -> Vec<Event> {
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
pub(super) fn list_set_aside(payment: &Payment, observed: &[ObservedTransfer]) -> Result<Vec<Event>, Rejection> {
    let is_aside =
        |observed: &&ObservedTransfer| observed.presence == Presence::Present && payment.sets_aside(observed);
    let record = |observed: &ObservedTransfer| {
        let transfer = Box::new(entry(payment, None, observed));
        Event::TransferRecorded { transfer, remine_until: None }
    };
    let mut events: Vec<Event> = observed.iter().filter(is_aside).map(record).collect();
    if events.is_empty() {
        return Err(Rejection::NothingSetAside);
    }
    events.truncate(room_for_more(payment));
    if events.is_empty() { Err(Rejection::ListFull { listed_max: LISTED_MAX }) } else { Ok(events) }
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
    let token = classify(payment, observed);
    let kept = known
        .filter(|known| known.from == observed.from && known.amount == observed.amount && known.token == token)
        .filter(|_| observed.amount.units() > 0);
    let first_seen = observed.first_block_time.unwrap_or(observed.block.time).min(observed.block.time);
    let same_txn = |t: &&Transfer| t.key.chain == observed.key.chain && t.key.tx_hash == observed.key.tx_hash;
    let siblings = payment.transfers.iter().filter(same_txn).map(|transfer| transfer.first_block_time);
    let mut transfer = Transfer {
        key: observed.key,
        revision: observed.revision,
        content_revision: kept.map_or(observed.revision, |known| known.content_revision),
        block: observed.block,
        first_block_time: siblings.fold(first_seen, Timestamp::min),
        from: observed.from,
        token,
        amount: observed.amount,
        status: TransferStatus::Seen,
        verdict: kept.and_then(|known| known.verdict.clone()),
        counted: false,
        excess: false,
    };
    if observed.presence == Presence::Orphaned {
        transfer.status = TransferStatus::Orphaned;
    } else if payment.is_dust(&transfer) {
        transfer.status = TransferStatus::Ignored;
    } else if let Some(known) = kept.filter(|known| known.is_present() && known.block.hash == observed.block.hash) {
        (transfer.status, transfer.counted, transfer.excess) = (known.status, known.counted, known.excess);
    }
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

/// Marks a transfer as final, if this is its current revision and the finality is sufficient for the total received so
/// far.
pub(super) fn finalise(payment: &Payment, key: TransferKey, revision: u32, reached: Finality) -> Vec<Event> {
    let current = payment.transfer(key).filter(|t| t.status == TransferStatus::Seen && t.revision == revision);
    match current {
        Some(_) if reached >= payment.required_finality() => vec![Event::TransferFinalised { key }],
        _ => Vec::new(),
    }
}

/// Applies a verdict, unless an existing verdict outranks it.
pub(super) fn screen(
    payment: &Payment,
    key: TransferKey,
    revision: u32,
    verdict: &Verdict,
) -> Result<Vec<Event>, Rejection> {
    let refuse = |rejection| if verdict.by_operator { Err(rejection) } else { Ok(Vec::new()) };
    let Some(transfer) = payment.transfer(key) else { return refuse(Rejection::UnknownTransfer) };
    if payment.is_dust(transfer) || revision < transfer.content_revision || transfer.counted {
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
            let untouched = payment.refunds.iter().all(|r| r.funds != crate::payment::money_out::Funds::Blocked);
            new.by_operator && payment.status == Status::Pending && untouched
        }
        (Decision::Allow, _) => new.by_operator || !old.by_operator,
    }
}
