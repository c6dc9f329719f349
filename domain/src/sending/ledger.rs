//! What an event of a sending posts to the ledger, in its own commit.

use super::event::Event;
use super::state::{Sending, SendingStatus};
use crate::ledger::{Account, Posting, PostingKind};

/// The posting of `event`; `before` is the sending right before it.
pub(super) fn posting(before: &Sending, event: &Event) -> Option<Posting> {
    let post = |kind, debit, credit| {
        let order = &before.order;
        Posting { kind, debit, credit, asset: order.asset, amount: order.amount, reference: order.id.to_string() }
    };
    match event {
        Event::Accepted { .. } => Some(post(PostingKind::Reserved, Account::Psp, Account::InFlight)),
        Event::Sent { .. } => {
            let reserved = before.status == SendingStatus::Pending;
            let from = if reserved { Account::InFlight } else { Account::Psp };
            Some(post(PostingKind::Sent, from, Account::External))
        }
        Event::Failed { .. } => Some(post(PostingKind::Returned, Account::InFlight, Account::Psp)),
        Event::Screened { .. } => None,
    }
}
