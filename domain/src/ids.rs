//! Identifiers: a prefix that names the kind, and a ULID. Stored inline as 128 bits, so that an id is `Copy`.
//!
//! Deliberately absent: any bare `String` id. Parsing is strict: the prefix of the kind and the canonical
//! upper-case ULID, nothing else.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

use crate::Timestamp;

/// Why a text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text does not begin with the prefix of this kind.
    #[error("expected an id that begins with `{expected}`")]
    WrongPrefix {
        /// The prefix with its underscore, such as `pay_`.
        expected: &'static str,
    },
    /// What follows the prefix is not a canonical ULID (26 upper-case characters of Crockford's base 32).
    #[error("`{prefix}` must be followed by a ULID of 26 characters")]
    NotAUlid {
        /// The prefix with its underscore.
        prefix: &'static str,
    },
}

fn parse_ulid(text: &str, prefix: &'static str) -> Result<u128, IdError> {
    let rest = text.strip_prefix(prefix).ok_or(IdError::WrongPrefix { expected: prefix })?;
    let ulid = Ulid::from_string(rest).map_err(|_| IdError::NotAUlid { prefix })?;
    // Decoding is lenient about case and look-alike letters; one object has one name only.
    let mut buffer = [0; ulid::ULID_LEN];
    if *ulid.array_to_str(&mut buffer) == *rest { Ok(ulid.0) } else { Err(IdError::NotAUlid { prefix }) }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The prefix of this kind, with its underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id from the clock and the thread's random generator. Never called inside a decision.
            pub fn generate() -> Self {
                Self(Ulid::generate().0)
            }

            /// The id with this ULID.
            pub const fn from_ulid(ulid: Ulid) -> Self {
                Self(ulid.0)
            }

            /// The ULID without the prefix: 48 bits of milliseconds, 80 random bits.
            pub const fn ulid(self) -> Ulid {
                Ulid(self.0)
            }

            /// The 128 bits, most significant first: for hashing and for key columns.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = [0; ulid::ULID_LEN];
                f.write_str($prefix)?;
                f.write_str(Ulid(self.0).array_to_str(&mut buffer))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_ulid(text, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// A payment service provider, the tenant.
    PspId = "psp_";
    /// A customer of a PSP.
    CustomerId = "cr_";
    /// A merchant of a PSP, permanent.
    MerchantId = "merch_";
    /// A payment.
    PaymentId = "pay_";
    /// A payout to a customer's wallet.
    PayoutId = "po_";
    /// A withdrawal to the PSP's own wallet.
    WithdrawalId = "wd_";
    /// A refund of a payment.
    RefundId = "rf_";
    /// A transfer to a recipient customer.
    TransferId = "tr_";
    /// A public event (webhook body).
    EventId = "evt_";
    /// A webhook delivery.
    DeliveryId = "whd_";
    /// One movement of money on-chain; the same id on-chain and in the database, so that it succeeds once.
    OperationId = "op_";
    /// An API key.
    KeyId = "key_";
    /// A check of a customer, which the interface calls a verification.
    CheckId = "ver_";
    /// A stored document of a customer.
    DocumentId = "doc_";
}

/// The low 80 bits of a ULID.
const RANDOM_MASK: u128 = (1 << 80) - 1;

/// Sets the ids of automatic refunds apart from the payment they belong to (and from its neighbours, which a
/// monotonic generator would number consecutively). An arbitrary constant of 80 bits.
const EXCESS_REFUND_SALT: u128 = 0x9e37_79b9_7f4a_7c15_f39c;

impl PaymentId {
    /// The logical shard, 0 to 255, from the random part: the ids of one moment spread over all shards.
    pub const fn shard(self) -> u8 {
        self.to_bytes()[15]
    }

    /// When it was generated, by the wall clock of whoever did.
    pub const fn made_at(self) -> Timestamp {
        #[allow(clippy::cast_possible_wrap, reason = "a ULID's time has 48 bits")]
        Timestamp(self.ulid().timestamp_ms() as i64)
    }

    /// The payment behind an id as the PSP knows it: its own, or that of the transfer that it carries.
    pub fn of_public(text: &str) -> Option<Self> {
        text.parse().ok().or_else(|| text.parse().ok().map(TransferId::payment))
    }
}

impl TransferId {
    /// The transfer that a payment carries.
    pub const fn of(payment: PaymentId) -> Self {
        Self(payment.0)
    }

    /// The payment that carries it.
    pub const fn payment(self) -> PaymentId {
        PaymentId(self.0)
    }
}

impl OperationId {
    /// The one settlement of a payment, for ever: after a reorganisation the same operation is used again.
    pub const fn settlement_of(payment: PaymentId) -> Self {
        Self(payment.0)
    }

    /// The one sending of a payout.
    pub const fn payout_of(payout: PayoutId) -> Self {
        Self(payout.0)
    }

    /// The one sending of a withdrawal.
    pub const fn withdrawal_of(withdrawal: WithdrawalId) -> Self {
        Self(withdrawal.0)
    }

    /// The one sending of a refund.
    pub const fn refund_of(refund: RefundId) -> Self {
        Self(refund.0)
    }
}

impl RefundId {
    /// The id of the `ordinal`-th refund of `payment` when the excess policy makes it by itself: deterministic, since a
    /// decision rolls no dice.
    pub(crate) fn automatic(payment: PaymentId, ordinal: usize) -> Self {
        let random = (payment.0 ^ EXCESS_REFUND_SALT).wrapping_add(ordinal as u128) & RANDOM_MASK;
        Self((payment.0 & !RANDOM_MASK) | random)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_keeps_to_its_kind() {
        let id = PaymentId::generate();
        let text = id.to_string();
        assert!(text.starts_with("pay_") && text.len() == 30);
        assert_eq!(text.parse::<PaymentId>().unwrap(), id);
        assert_eq!(text.parse::<RefundId>(), Err(IdError::WrongPrefix { expected: "rf_" }));
        assert_eq!("pay_1".parse::<PaymentId>(), Err(IdError::NotAUlid { prefix: "pay_" }));
        assert_eq!(text.to_lowercase().parse::<PaymentId>(), Err(IdError::NotAUlid { prefix: "pay_" }));
        assert!("pay_8ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<PaymentId>().is_err(), "129 bits");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<PaymentId>(&json).unwrap(), id);
        assert_eq!(serde_json::from_reader::<_, PaymentId>(json.as_bytes()).unwrap(), id);
    }

    #[test]
    fn operations_are_named_after_what_they_do() {
        let payment = PaymentId::generate();
        let operation = OperationId::settlement_of(payment);
        assert_eq!(operation.to_string().strip_prefix("op_"), payment.to_string().strip_prefix("pay_"));
        let refunds: std::collections::BTreeSet<_> =
            (0..9).map(|n| OperationId::refund_of(RefundId::automatic(payment, n))).collect();
        assert_eq!(refunds.len(), 9);
        assert!(!refunds.contains(&operation));
    }

    #[test]
    fn shards_spread() {
        let shards: std::collections::BTreeSet<_> = (0..10_000).map(|_| PaymentId::generate().shard()).collect();
        assert_eq!(shards.len(), 256);
    }
}
