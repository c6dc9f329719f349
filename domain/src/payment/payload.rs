//! The flat body of a webhook, and the patterns that select events.
//!
//! Not here: signatures, headers, delivery.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::announce::{Announcement, EventName};
use super::label::Label;
use super::state::Payment;
use super::status::{FailureReason, Status};
use crate::chain::{Address, Chain, Hash32};
use crate::ids::{CustomerId, EventId, MerchantId, RefundId};
use crate::money::{Token, UnknownName};

/// Events that an endpoint subscribes to: all (`*`), a family (`payment.*`), or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventPattern {
    /// `*`
    All,
    /// Every event of a family. The family is the part of the name before the dot, such as `payment`.
    Family(&'static str),
    /// One event.
    One(EventName),
}

impl EventName {
    /// Returns the part of the name before the dot.
    pub fn family(self) -> &'static str {
        self.as_str().split_once('.').map_or("", |(family, _)| family)
    }
}

impl EventPattern {
    /// Returns true if the pattern covers an event.
    pub fn matches(self, name: EventName) -> bool {
        match self {
            Self::All => true,
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

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Family(family) => write!(f, "{family}.*"),
            Self::One(name) => f.write_str(name.as_str()),
        }
    }
}

impl Serialize for EventPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventPattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Body of a payment event: a flat object without inapplicable fields. Amounts are decimal strings, times ISO 8601.
#[derive(Serialize)]
struct Body<'a> {
    event: &'static str,
    payment_id: String,
    timestamp: String,
    event_id: EventId,
    sequence: u32,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_id: Option<MerchantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<&'a str>,
    amount: String,
    amount_received: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    excess_received: Option<String>,
    token: Token,
    chain: Chain,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_hash: Option<Hash32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psp_amount: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    treasury_fee: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_id: Option<RefundId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_amount: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_address: Option<Address>,
    labels: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<FailureReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

/// Returns the body of `announcement`, as it is signed and sent. `payment` is the state after the commit.
pub fn payload(payment: &Payment, announcement: &Announcement, event_id: EventId) -> Result<String, serde_json::Error> {
    let terms = &payment.terms;
    // The shares are fixed from confirmation on. Before it, and after a reorganisation, they are undefined.
    let fixed = matches!(announcement.status, Status::Confirmed | Status::Settled) && terms.purpose.is_pay_in();
    let settlement = payment.settlement.as_deref().filter(|_| fixed);
    let refund = payment.refunds.iter().find(|refund| Some(refund.id) == announcement.refund_id);
    let excess = payment.excess_received();
    serde_json::to_string(&Body {
        event: announcement.name.as_str(),
        payment_id: terms.public_id(),
        timestamp: announcement.at.to_string(),
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
        chain: terms.chain,
        tx_hash: announcement.tx_hash,
        psp_amount: settlement.map(|settlement| settlement.psp_amount.to_string()),
        treasury_fee: settlement.map(|settlement| settlement.treasury_fee.to_string()),
        refund_id: announcement.refund_id,
        refund_amount: refund.map(|refund| refund.amount.to_string()),
        refund_address: refund.map(|refund| refund.to),
        labels: payment.labels.iter().map(Label::as_str).collect(),
        failure_reason: announcement.failure_reason,
        metadata: terms.metadata.as_ref(),
    })
}

/// Returns the body of the test event of an endpoint.
pub fn test_payload(at: crate::time::Timestamp, event_id: EventId) -> Map<String, Value> {
    let fields = [
        ("event", EventName::WebhookTest.to_string()),
        ("payment_id", "pay_test".to_owned()),
        ("timestamp", at.to_string()),
        ("event_id", event_id.to_string()),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), Value::String(value))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_events() {
        let covers = |pattern: &str, name: EventName| pattern.parse::<EventPattern>().unwrap().matches(name);
        assert!(covers("*", EventName::RefundSent));
        assert!(covers("payment.*", EventName::PaymentReorged) && !covers("payment.*", EventName::PayinSettled));
        assert!(covers("payin.settled", EventName::PayinSettled) && !covers("payin.settled", EventName::PayinFailed));
        for bad in ["", "pay", "payment.", "payment*", "nothing.*", "payment.gone", "PAYMENT.*", ".*"] {
            assert!(bad.parse::<EventPattern>().is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&"payin.*".parse::<EventPattern>().unwrap()).unwrap(), "\"payin.*\"");
        assert!(EventName::ALL.iter().all(|name| name.as_str().parse::<EventName>() == Ok(*name)));
    }
}
