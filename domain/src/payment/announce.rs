//! Public events: their names, the events that each internal event announces, the patterns that select them, and the flat
//! body of a webhook.
//!
//! Not here: signatures, headers, delivery.

use std::str::FromStr;

use derive_more::Display;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::event::Event;
use super::money_out::{Refund, RefundFailure};
use super::payer_request::{AddressProof, PayerRequest, RefundRequestState};
use super::state::Payment;
use super::status::{FailureReason, Label, PublicFailure, Reason, Status};
use crate::chain::{Address, Chain, Hash32};
use crate::ids::{CustomerId, EventId, MerchantId, RefundId, RefundRequestId};
use crate::money::{Token, UnknownName};
use crate::named::named;
use crate::time::Timestamp;

named! {
    /// Name of a public event.
    EventName, "the name of a webhook event" {
        /// Funds were received.
        PaymentConfirmed = "payment.confirmed",
        /// Settlement completed.
        PaymentSettled = "payment.settled",
        /// Overpayment, underpayment, or late, excess, or misdirected funds.
        PaymentMismatched = "payment.mismatched",
        /// Failure, blocked funds, or expiry.
        PaymentFailed = "payment.failed",
        /// Funds or a settlement were orphaned.
        PaymentReorged = "payment.reorged",
        /// Pay-in detected and confirmed on-chain.
        PayinConfirmed = "payin.confirmed",
        /// Pay-in settled.
        PayinSettled = "payin.settled",
        /// Pay-in confirmed but settlement failed.
        PayinSettlementFailed = "payin.settlement_failed",
        /// Pay-in failed.
        PayinFailed = "payin.failed",
        /// Received amount does not match the expected value.
        PayinMismatched = "payin.mismatched",
        /// Received amount lower than expected.
        PayinUnderpaid = "payin.underpaid",
        /// Payout created.
        PayoutPending = "payout.pending",
        /// Payout executed.
        PayoutSent = "payout.sent",
        /// Payout could not be completed.
        PayoutFailed = "payout.failed",
        /// Withdrawal executed.
        WithdrawSent = "withdraw.sent",
        /// Withdrawal failed.
        WithdrawFailed = "withdraw.failed",
        /// Refund executed.
        RefundSent = "refund.sent",
        /// Refund failed.
        RefundFailed = "refund.failed",
        /// A payer asked for a refund.
        RefundRequested = "refund.requested",
        /// Transfer completed.
        TransferSettled = "transfer.settled",
        /// Transfer execution failed.
        TransferFailed = "transfer.failed",
        /// Transfer underpaid by the sender.
        TransferUnderpaid = "transfer.underpaid",
        /// Surplus, late, or misdirected funds for a transfer.
        TransferMismatched = "transfer.mismatched",
        /// The funds or the delivery of a transfer were orphaned.
        TransferReorged = "transfer.reorged",
        /// The KYC status of a customer changed.
        CustomerKycUpdated = "customer.kyc_updated",
        /// A customer accepted the terms of service.
        CustomerConsentAccepted = "customer.consent_accepted",
        /// A customer was deactivated.
        CustomerDeactivated = "customer.deactivated",
        /// Test event of an endpoint.
        WebhookTest = "webhook.test",
    }
}

/// One public event of a payment. Stores the values of that time that may change later.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Name.
    pub name: EventName,
    /// Position in the event feed of the payment: 1, 2, 3, ... without gaps.
    pub sequence: u32,
    /// When it happened.
    pub at: Timestamp,
    /// Status of the payment at that time.
    pub status: Status,
    /// Failure reason at that time. A late transfer can clear it again, even in the same commit.
    pub failure_reason: Option<FailureReason>,
    /// Transaction of the event.
    pub tx_hash: Option<Hash32>,
    /// Refund of the event.
    pub refund_id: Option<RefundId>,
    /// Request of a payer of the event.
    pub refund_request_id: Option<RefundRequestId>,
}

/// Returns the public events that `event` announces, in the order of delivery. `payment.*` and `payin.*` are two names
/// for the same event; both are announced.
pub fn announced(after: &Payment, event: &Event) -> &'static [EventName] {
    if after.terms.purpose.is_pay_in() { of_payment(after, event) } else { of_transfer(after, event) }
}

/// Public events of a transfer to a customer. A final failure is announced once, even if the funds are refunded later.
fn of_transfer(after: &Payment, event: &Event) -> &'static [EventName] {
    use EventName as Name;
    match event {
        Event::Mismatched { reason: Reason::Underpaid, .. } => &[Name::TransferUnderpaid],
        Event::Mismatched { .. } if fails(after) => &[Name::TransferMismatched, Name::TransferFailed],
        Event::Mismatched { .. }
        | Event::TransferCounted { excess: true, .. }
        | Event::Confirmed { reason: Reason::Overpaid, .. } => &[Name::TransferMismatched],
        Event::TransferFinalised { key } if after.transfer(*key).is_some_and(|t| !t.is_right()) => {
            &[Name::TransferMismatched]
        }
        Event::Failed { reason: FailureReason::SettlementFailed, .. } => &[],
        Event::Failed { .. } | Event::SettlementFailed { announced: true, .. } => &[Name::TransferFailed],
        Event::Settled { .. } => &[Name::TransferSettled],
        Event::SettlementOrphaned { was_settled: true, .. } if after.status == Status::Settled => {
            &[Name::TransferReorged]
        }
        Event::Reorged { .. } => &[Name::TransferReorged],
        Event::RefundSent { .. } => &[Name::RefundSent],
        Event::RefundFailed { .. } => &[Name::RefundFailed],
        Event::RefundAsked { .. } => &[Name::RefundRequested],
        _ => &[],
    }
}

/// Returns true if the last step made the transfer fail and it had not failed before.
fn fails(after: &Payment) -> bool {
    let before = after.public_history().take(after.history.len().saturating_sub(1)).last();
    after.public_status() == "failed" && before.is_none_or(|(_, status)| status != "failed")
}

fn of_payment(after: &Payment, event: &Event) -> &'static [EventName] {
    use EventName as Name;
    const MISMATCHED: &[EventName] = &[Name::PaymentMismatched, Name::PayinMismatched];
    match event {
        // The overpayment policy accepted the surplus without asking the PSP, so the mismatch is announced too. If the
        // PSP accepts a surplus, the mismatch was announced earlier and the payment is confirmed for another reason.
        Event::Confirmed { reason: Reason::Overpaid, .. } => {
            &[Name::PaymentMismatched, Name::PayinMismatched, Name::PaymentConfirmed, Name::PayinConfirmed]
        }
        Event::Confirmed { .. } => &[Name::PaymentConfirmed, Name::PayinConfirmed],
        Event::Mismatched { reason: Reason::Underpaid, .. } => {
            &[Name::PaymentMismatched, Name::PayinUnderpaid, Name::PayinMismatched]
        }
        Event::Mismatched { .. } | Event::TransferCounted { excess: true, .. } => MISMATCHED,
        Event::TransferFinalised { key } if after.transfer(*key).is_some_and(|t| !t.is_right()) => {
            &[Name::PaymentMismatched]
        }
        Event::Failed { reason: FailureReason::SettlementFailed, .. } => &[Name::PaymentFailed],
        Event::Failed { .. } => &[Name::PaymentFailed, Name::PayinFailed],
        Event::Settled { .. } => &[Name::PaymentSettled, Name::PayinSettled],
        Event::SettlementFailed { announced: true, .. } => &[Name::PayinSettlementFailed],
        Event::SettlementOrphaned { was_settled: true, .. } if after.status == Status::Settled => {
            &[Name::PaymentReorged]
        }
        Event::Reorged { .. } => &[Name::PaymentReorged],
        Event::RefundSent { .. } => &[Name::RefundSent],
        Event::RefundFailed { .. } => &[Name::RefundFailed],
        Event::RefundAsked { .. } => &[Name::RefundRequested],
        _ => &[],
    }
}

/// Returns the announcements of an event. `after` is the payment directly after the event.
pub(crate) fn announcements(after: &Payment, event: &Event, at: Timestamp) -> Vec<Announcement> {
    let names = announced(after, event);
    let last = after.sequence;
    let count = u32::try_from(names.len()).unwrap_or(0);
    let sequences = last.saturating_sub(count) + 1..;
    names
        .iter()
        .zip(sequences)
        .map(|(name, sequence)| Announcement {
            name: *name,
            sequence,
            at,
            status: after.status,
            failure_reason: after.failure_reason.filter(|_| after.status == Status::Failed),
            tx_hash: transaction(after, event),
            refund_id: match event {
                Event::RefundSent { refund_id, .. } | Event::RefundFailed { refund_id, .. } => Some(*refund_id),
                _ => None,
            },
            refund_request_id: match event {
                Event::RefundAsked { request } => Some(request.id),
                _ => None,
            },
        })
        .collect()
}

/// Returns the transaction of an announcement: the settlement, the outbound transfer, the transfer that the event is
/// about, or the last counted transfer.
fn transaction(after: &Payment, event: &Event) -> Option<Hash32> {
    match event {
        Event::Confirmed { .. } | Event::Mismatched { .. } => after.last_counted().map(|transfer| transfer.key.tx_hash),
        Event::TransferCounted { key, .. } | Event::TransferFinalised { key } | Event::Reorged { key, .. } => {
            Some(key.tx_hash)
        }
        Event::Settled { .. } => after.settlement.as_ref().and_then(|settlement| settlement.tx_hash),
        Event::RefundSent { tx_hash, .. } => Some(*tx_hash),
        _ => None,
    }
}

/// Events that an endpoint subscribes to: all (`*`) except opt-in ones, a family (`payment.*`), or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, SerializeDisplay, DeserializeFromStr)]
pub enum EventPattern {
    /// `*`
    #[display("*")]
    All,
    /// Every event of a family. The family is the part of the name before the dot, such as `payment`.
    #[display("{_0}.*")]
    Family(&'static str),
    /// One event.
    One(EventName),
}

impl EventName {
    /// Returns the part of the name before the dot.
    pub fn family(self) -> &'static str {
        self.as_str().split_once('.').map_or("", |(family, _)| family)
    }

    /// Returns true if `*` does not cover the event: it exists only for PSPs that subscribe to it or to its family.
    pub const fn is_opt_in(self) -> bool {
        matches!(self, Self::CustomerKycUpdated | Self::CustomerConsentAccepted | Self::CustomerDeactivated)
    }
}

impl EventPattern {
    /// Every pattern: all events, the families in the order of their first event, and the events.
    pub fn every() -> impl Iterator<Item = Self> {
        let families = EventName::ALL.chunk_by(|one, next| one.family() == next.family());
        let families = families.filter_map(|names| Some(Self::Family(names.first()?.family())));
        let names = EventName::ALL.iter().copied().map(Self::One);
        std::iter::once(Self::All).chain(families).chain(names)
    }

    /// Returns true if the pattern covers an event.
    pub fn matches(self, name: EventName) -> bool {
        match self {
            Self::All => !name.is_opt_in(),
            Self::Family(family) => name.family() == family,
            Self::One(one) => one == name,
        }
    }
}

impl FromStr for EventPattern {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let expected = "*, a family such as payment.*, or the name of an event such as payin.settled";
        if text == "*" {
            return Ok(Self::All);
        }
        if let Some(family) = text.strip_suffix(".*") {
            let known = EventName::ALL.iter().map(|name| name.family()).find(|known| *known == family);
            return known.map(Self::Family).ok_or(UnknownName { expected });
        }
        text.parse().map(Self::One).map_err(|_| UnknownName { expected })
    }
}

/// Body of a payment event: a flat object without inapplicable fields. Amounts are decimal strings, times ISO 8601.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct Body<'a> {
    /// The event itself, like the times below.
    id: EventId,
    event: &'static str,
    payment_id: String,
    timestamp: String,
    created_at: String,
    updated_at: String,
    event_id: EventId,
    sequence: u32,
    status: &'static str,
    merchant_id: Option<MerchantId>,
    customer_id: Option<CustomerId>,
    reference: Option<&'a str>,
    amount: String,
    amount_received: String,
    excess_received: Option<String>,
    token: Token,
    chain: Option<Chain>,
    tx_hash: Option<Hash32>,
    psp_amount: Option<String>,
    treasury_fee: Option<String>,
    refund_id: Option<RefundId>,
    refund_request_id: Option<RefundRequestId>,
    refund_request_status: Option<RefundRequestState>,
    refund_address_proof: Option<AddressProof>,
    refund_amount: Option<String>,
    refund_address: Option<String>,
    refund_chain: Option<Chain>,
    refund_token_address: Option<String>,
    refund_reference: Option<&'a str>,
    refund_metadata: Option<&'a Map<String, Value>>,
    refund_failure_reason: Option<RefundFailure>,
    refund_failure: Option<&'a str>,
    /// Of an event of a refund: `amount` under an unambiguous name.
    payment_amount: Option<String>,
    labels: Vec<&'static str>,
    failure_reason: Option<&'static str>,
    failure: Option<&'a str>,
    metadata: Option<&'a Map<String, Value>>,
}

/// Returns the body of `announcement`, as it is signed and sent. `payment` is the state after the commit.
pub fn payload(payment: &Payment, announcement: &Announcement, event_id: EventId) -> Result<String, serde_json::Error> {
    let terms = &payment.terms;
    // The shares are fixed from confirmation on. Before it, and after a reorganisation, they are undefined.
    let fixed = matches!(announcement.status, Status::Confirmed | Status::Settled) && terms.purpose.is_pay_in();
    let settlement = payment.settlement.as_deref().filter(|_| fixed);
    let refund = payment.refunds.iter().find(|refund| Some(refund.id) == announcement.refund_id);
    let request = payment.refund_requests.iter().find(|request| Some(request.id) == announcement.refund_request_id);
    let asked = request.map(|request| request.asset.unwrap_or_else(|| payment.asset()));
    // A request that was carried out at once.
    let refund_of_request = request.filter(|request| !request.is_open()).map(PayerRequest::refund_id);
    let excess = payment.excess_received();
    let failure = failure_of(payment, announcement, refund);
    serde_json::to_string(&Body {
        id: event_id,
        event: announcement.name.as_str(),
        payment_id: terms.public_id(),
        timestamp: announcement.at.to_string(),
        created_at: announcement.at.to_string(),
        updated_at: announcement.at.to_string(),
        event_id,
        sequence: announcement.sequence,
        status: payment.public_status_at(announcement.status),
        merchant_id: terms.merchant_id,
        customer_id: terms.customer_id,
        reference: terms.reference.as_deref(),
        amount: terms.amount.to_string(),
        amount_received: payment.amount_received().to_string(),
        excess_received: (!excess.is_zero()).then(|| excess.to_string()),
        token: terms.token,
        chain: payment.chain(),
        tx_hash: announcement.tx_hash,
        psp_amount: settlement.map(|settlement| settlement.psp_amount.to_string()),
        treasury_fee: settlement.map(|settlement| settlement.treasury_fee.to_string()),
        refund_id: announcement.refund_id.or(refund_of_request),
        refund_request_id: announcement.refund_request_id,
        refund_request_status: request.map(|request| request.state),
        refund_address_proof: request.map(|request| request.proof),
        refund_amount: refund.map(|it| it.amount).or(request.map(|it| it.amount)).map(|amount| amount.to_string()),
        refund_address: refund.map(|it| it.to).or(request.map(|it| it.to)).map(Address::checksummed),
        refund_chain: asked.map(|asset| asset.chain),
        refund_token_address: asked.map(|asset| asset.address.checksummed()),
        refund_reference: refund.and_then(|refund| refund.reference.as_deref()),
        refund_metadata: refund.and_then(|refund| refund.metadata.as_ref()),
        refund_failure_reason: refund.and_then(Refund::failure_reason),
        refund_failure: refund.filter(|refund| refund.failure_reason().is_some()).and_then(|it| it.failure.as_deref()),
        payment_amount: (announcement.refund_id.is_some() || request.is_some()).then(|| terms.amount.to_string()),
        labels: payment.labels.iter().map(Label::as_str).collect(),
        failure_reason: failure.map(|(code, _)| code),
        failure: failure.map(|(_, words)| words),
        metadata: terms.metadata.as_ref(),
    })
}

/// Returns the code and the words of the failure that an announcement is about: of the refund, of the settlement, or of the
/// payment.
fn failure_of<'a>(
    payment: &Payment,
    announcement: &Announcement,
    refund: Option<&'a Refund>,
) -> Option<(&'static str, &'a str)> {
    if announcement.name == EventName::RefundFailed
        && let Some(refund) = refund
        && let Some(reason) = refund.failure_reason()
    {
        return Some((reason.as_str(), refund.failure.as_deref()?));
    }
    let failure = match announcement.name {
        EventName::PayinSettlementFailed => Some(PublicFailure::SettlementFailed),
        _ => payment.public_failure_at(announcement.status, announcement.failure_reason),
    };
    failure.map(|failure| (failure.as_str(), failure.words()))
}

/// Returns the body of the test event of an endpoint.
pub fn test_payload(at: Timestamp, event_id: EventId) -> Map<String, Value> {
    let fields = [
        ("id", event_id.to_string()),
        ("event", EventName::WebhookTest.to_string()),
        ("payment_id", "pay_test".to_owned()),
        ("timestamp", at.to_string()),
        ("created_at", at.to_string()),
        ("updated_at", at.to_string()),
        ("event_id", event_id.to_string()),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), Value::String(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_events() {
        let covers = |pattern: &str, name: EventName| pattern.parse::<EventPattern>().unwrap().matches(name);
        assert!(covers("*", EventName::RefundSent) && !covers("*", EventName::CustomerDeactivated));
        assert!(covers("customer.*", EventName::CustomerDeactivated));
        assert!(EventName::ALL.iter().all(|name| name.is_opt_in() == (name.family() == "customer")));
        assert!(covers("payment.*", EventName::PaymentReorged) && !covers("payment.*", EventName::PayinSettled));
        assert!(covers("payin.settled", EventName::PayinSettled) && !covers("payin.settled", EventName::PayinFailed));
        for bad in ["", "pay", "payment.", "payment*", "nothing.*", "payment.gone", "PAYMENT.*", ".*"] {
            assert!(bad.parse::<EventPattern>().is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&"payin.*".parse::<EventPattern>().unwrap()).unwrap(), "\"payin.*\"");
        assert!(EventPattern::every().all(|pattern| pattern.to_string().parse() == Ok(pattern)));
        assert!(EventName::ALL.iter().all(|name| name.as_str().parse::<EventName>() == Ok(*name)));
    }
}
