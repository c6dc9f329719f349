//! What an event of a sending posts to the ledger, in its own commit, and what all of them must add up to.

use super::event::Event;
use super::state::{Sending, SendingStatus};
use crate::ledger::{Account, Holdings, Posting, PostingKind};

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
        Event::Failed { .. } if before.status == SendingStatus::Sent => {
            Some(post(PostingKind::SentReversed, Account::External, Account::Psp))
        }
        Event::Failed { .. } => Some(post(PostingKind::Returned, Account::InFlight, Account::Psp)),
        Event::Screened { .. } => None,
    }
}

impl Sending {
    /// What stands on each account for this sending, by its state alone.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        let credit = match self.status {
            SendingStatus::Pending => Account::InFlight,
            SendingStatus::Sent => Account::External,
            SendingStatus::Failed => return holdings,
        };
        holdings.moved(self.order.asset, Account::Psp, credit, self.order.amount);
        holdings
    }
}
