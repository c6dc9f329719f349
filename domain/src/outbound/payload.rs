//! Public events of an outbound transfer with their flat body, and its ledger postings with the balances that they must add
//! up to.

use serde::{Deserialize, Serialize};

use super::decide::Event;
use super::state::{FailureReason, OutboundId, OutboundKind, OutboundStatus, OutboundTransfer};
use crate::chain::{Chain, Hash32};
use crate::ids::{CustomerId, EventId};
use crate::ledger::{Account, Holdings, Posting, PostingKind};
use crate::money::Token;
use crate::payment::EventName;
use crate::time::Timestamp;

/// One public event of an outbound transfer.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundAnnouncement {
    /// Name.
    pub name: EventName,
    /// Position in the event feed of the outbound transfer: 1, 2, 3, ... without gaps.
    pub sequence: u32,
    /// Time of the event.
    pub at: Timestamp,
    /// Status at that time.
    pub status: OutboundStatus,
    /// Transaction of the event.
    pub tx_hash: Option<Hash32>,
}

/// Returns the public event that an event announces.
pub(super) fn announced(outbound: &OutboundTransfer, event: &Event) -> Option<EventName> {
    match (outbound.order.id.kind(), event) {
        (OutboundKind::Payout, Event::Accepted { .. }) => Some(EventName::PayoutPending),
        (OutboundKind::Payout, Event::Sent { .. }) => Some(EventName::PayoutSent),
        (OutboundKind::Payout, Event::Failed { .. }) => Some(EventName::PayoutFailed),
        (OutboundKind::Withdrawal, Event::Sent { .. }) => Some(EventName::WithdrawSent),
        (OutboundKind::Withdrawal, Event::Failed { .. }) => Some(EventName::WithdrawFailed),
        (OutboundKind::Withdrawal, Event::Accepted { .. }) | (_, Event::Screened { .. }) => None,
    }
}

/// Returns the announcement of an event. `after` is the outbound transfer directly after the event.
pub(super) fn announcement(after: &OutboundTransfer, event: &Event, at: Timestamp) -> Option<OutboundAnnouncement> {
    let name = announced(after, event)?;
    let tx_hash = if let Event::Sent { tx_hash, .. } = event { Some(*tx_hash) } else { None };
    Some(OutboundAnnouncement { name, sequence: after.sequence, at, status: after.status, tx_hash })
}

/// Body of an event of an outbound transfer: a flat object without inapplicable fields.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct Body<'a> {
    /// The event itself, like the times below.
    id: EventId,
    event: &'static str,
    payment_id: OutboundId,
    timestamp: String,
    created_at: String,
    updated_at: String,
    event_id: EventId,
    sequence: u32,
    status: OutboundStatus,
    customer_id: Option<CustomerId>,
    reference: Option<&'a str>,
    amount: String,
    token: Token,
    chain: Chain,
    address: String,
    tx_hash: Option<Hash32>,
    failure_reason: Option<FailureReason>,
    failure: Option<&'a str>,
    metadata: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

/// Returns the body of `announcement`, as it is signed and sent. `outbound` is the state after the commit.
pub fn payload(
    outbound: &OutboundTransfer,
    announcement: &OutboundAnnouncement,
    event_id: EventId,
) -> Result<String, serde_json::Error> {
    let order = &outbound.order;
    let failed = announcement.status == OutboundStatus::Failed;
    serde_json::to_string(&Body {
        id: event_id,
        event: announcement.name.as_str(),
        payment_id: order.id,
        timestamp: announcement.at.to_string(),
        created_at: announcement.at.to_string(),
        updated_at: announcement.at.to_string(),
        event_id,
        sequence: announcement.sequence,
        status: announcement.status,
        customer_id: order.customer_id,
        reference: order.reference.as_deref(),
        amount: order.amount.to_string(),
        token: order.token,
        chain: order.asset.chain,
        address: order.to.checksummed(),
        tx_hash: announcement.tx_hash,
        failure_reason: outbound.failure_reason.filter(|_| failed),
        failure: outbound.failure.as_deref().filter(|_| failed),
        metadata: order.metadata.as_ref(),
    })
}

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
