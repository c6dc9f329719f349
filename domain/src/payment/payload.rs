//! The flat body of a webhook, and the patterns that choose events.
//!
//! Deliberately absent: signatures, headers, delivery.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::announce::{Announcement, EventName};
use super::state::Payment;
use super::status::Status;
use crate::ids::EventId;
use crate::money::UnknownName;

/// Which events an endpoint wants: everything (`*`), a family (`payment.*`), or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventPattern {
    /// `*`
    All,
    /// Every event of the family: the part before the dot, such as `payment`.
    Family(&'static str),
    /// One event.
    One(EventName),
}

impl EventName {
    /// The part before the dot.
    pub fn family(self) -> &'static str {
        self.as_str().split_once('.').map_or("", |(family, _)| family)
    }
}

impl EventPattern {
    /// Whether the pattern covers an event.
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

/// The body of one public event of a payment: flat, amounts as decimal strings, absent fields left out. `payment` is the
/// payment after the transition that made the announcement.
pub fn payload(payment: &Payment, announcement: &Announcement, event_id: EventId) -> Map<String, Value> {
    let terms = &payment.terms;
    let mut body = Map::new();
    let mut text = |key: &str, value: String| body.insert(key.to_owned(), Value::String(value));
    text("event", announcement.name.to_string());
    text("payment_id", terms.id.to_string());
    text("timestamp", announcement.at.to_string());
    text("event_id", event_id.to_string());
    text("status", announcement.status.to_string());
    text("merchant_id", terms.merchant_id.to_string());
    text("amount", terms.amount.to_string());
    text("amount_received", payment.amount_received().to_string());
    text("excess_received", payment.excess_received().to_string());
    text("token", terms.token.to_string());
    text("chain", terms.chain.to_string());
    let mut optional = |key: &str, value: Option<String>| value.map(|value| text(key, value));
    optional("customer_id", terms.customer_id.map(|id| id.to_string()));
    optional("reference", terms.reference.clone());
    optional("tx_hash", announcement.tx_hash.map(|hash| hash.to_string()));
    let failed = announcement.status == Status::Failed;
    optional("failure_reason", payment.failure_reason.filter(|_| failed).map(|reason| reason.to_string()));
    let carried = matches!(announcement.status, Status::Confirmed | Status::Settled);
    if let Some(settlement) = payment.settlement.as_deref().filter(|_| carried) {
        optional("psp_amount", Some(settlement.psp_amount.to_string()));
        optional("treasury_fee", Some(settlement.treasury_fee.to_string()));
    }
    let refund = payment.refunds.iter().find(|refund| Some(refund.id) == announcement.refund_id);
    if let Some(refund) = refund {
        optional("refund_id", Some(refund.id.to_string()));
        optional("refund_amount", Some(refund.amount.to_string()));
        optional("refund_address", Some(refund.to.to_string()));
    }
    body.insert("sequence".to_owned(), announcement.sequence.into());
    let labels = payment.labels.iter().map(|label| Value::from(label.as_str())).collect();
    body.insert("labels".to_owned(), Value::Array(labels));
    if let Some(metadata) = &terms.metadata {
        body.insert("metadata".to_owned(), Value::Object(metadata.clone()));
    }
    body
}

/// The body of the endpoint's test event.
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
    fn patterns_choose_events() {
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
