//! Ledger postings of an event, made in its own commit.

use super::event::Event;
use super::money_out::{Refund, RefundState, Settlement, SettlementState, Vault};
use super::state::Payment;
use super::terms::Purpose;
use super::transfer::{Transfer, TransferStatus};
use crate::chain::Hash32;
use crate::ledger::{Account, Asset, Posting, PostingKind};
use crate::money::Amount;

/// Returns the postings of `event`. `before` is the payment directly before the event.
pub(super) fn postings(before: &Payment, event: &Event) -> Vec<Posting> {
    match event {
        Event::TransferFinalised { key } => {
            before.transfer(*key).map(|transfer| received(before, transfer)).into_iter().collect()
        }
        Event::TransferRecorded { transfer, .. } => recorded(before, transfer),
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

/// Posts a new entry of a transfer. Reverses the posting of the old entry if it no longer applies, and posts dust to
/// `Suspense`, so that vaults and ledger agree.
fn recorded(before: &Payment, new: &Transfer) -> Vec<Posting> {
    let old = before.transfer(new.key);
    let posted = |t: &&Transfer| matches!(t.status, TransferStatus::Final | TransferStatus::Ignored);
    let same = |old: &Transfer| old.status == new.status && old.amount == new.amount && old.token == new.token;
    let mut postings = Vec::new();
    if old.is_some_and(|old| posted(&old) && same(old)) {
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
    let asset: Asset = refund.asset.unwrap_or_else(|| payment.asset());
    Posting { kind, debit, credit, asset, amount: refund.amount, reference: refund.id.to_string() }
}
