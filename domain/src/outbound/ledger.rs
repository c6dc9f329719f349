//! Ledger postings of an outbound transfer, and the balances that they must add up to.

use super::event::Event;
use super::state::{OutboundStatus, OutboundTransfer};
use crate::ledger::{Account, Holdings, Posting, PostingKind};

/// Returns the posting of `event`. `before` is the outbound transfer directly before the event.
pub(super) fn posting(before: &OutboundTransfer, event: &Event) -> Option<Posting> {
    let post = |kind, debit, credit| {
        let order = &before.order;
        Posting { kind, debit, credit, asset: order.asset, amount: order.amount, reference: order.id.to_string() }
    };
    match event {
        Event::Accepted { .. } => Some(post(PostingKind::Reserved, Account::Psp, Account::InFlight)),
        Event::Sent { .. } => {
            let reserved = before.status == OutboundStatus::Pending;
            let from = if reserved { Account::InFlight } else { Account::Psp };
            Some(post(PostingKind::Sent, from, Account::External))
        }
        Event::Failed { .. } if before.status == OutboundStatus::Sent => {
            Some(post(PostingKind::SentReversed, Account::External, Account::Psp))
        }
        Event::Failed { .. } => Some(post(PostingKind::Returned, Account::InFlight, Account::Psp)),
        Event::Screened { .. } => None,
    }
}

impl OutboundTransfer {
    /// Returns the balance of each account for this outbound transfer, computed only from its state.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        let credit = match self.status {
            OutboundStatus::Pending => Account::InFlight,
            OutboundStatus::Sent => Account::External,
            OutboundStatus::Failed => return holdings,
        };
        holdings.moved(self.order.asset, Account::Psp, credit, self.order.amount);
        holdings
    }
}
