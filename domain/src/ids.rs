//! Identifiers, and the scopes of API keys. An identifier is a prefix that names the kind, followed by a ULID. An id is 128 bits, stored inline, and `Copy`.
//!
//! There are no plain `String` ids. Parsing is strict: it accepts only the prefix of the kind followed by a canonical
//! upper-case ULID.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use ulid::Ulid;

use crate::Timestamp;
use crate::chain::Hash32;
use crate::named::named;

/// Error of a text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text does not start with the prefix of this kind.
    #[error("expected an id that begins with `{expected}`")]
    WrongPrefix {
        /// Prefix with its underscore, such as `pay_`.
        expected: &'static str,
    },
    /// The text after the prefix is not a canonical ULID (26 upper-case characters of Crockford's base 32).
    #[error("`{prefix}` must be followed by a ULID of 26 characters")]
    NotAUlid {
        /// Prefix with its underscore.
        prefix: &'static str,
    },
}

fn parse_ulid(text: &str, prefix: &'static str) -> Result<u128, IdError> {
    let rest = text.strip_prefix(prefix).ok_or(IdError::WrongPrefix { expected: prefix })?;
    let ulid = Ulid::from_string(rest).map_err(|_| IdError::NotAUlid { prefix })?;
    // Decoding ignores case and accepts look-alike letters. Each object must have exactly one id, so accept only the
    // canonical form.
    let mut buffer = [0; ulid::ULID_LEN];
    if *ulid.array_to_str(&mut buffer) == *rest { Ok(ulid.0) } else { Err(IdError::NotAUlid { prefix }) }
}

/// An identifier.
pub trait Id: FromStr<Err = IdError> {
    /// Prefix of this kind, with its underscore.
    const PREFIX: &'static str;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
        #[derive(derive_more::Debug)]
        #[debug("{}", self)]
        pub struct $name(u128);

        impl $name {
            /// Prefix of this kind, with its underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Generates an id from the clock and the random generator of the thread. Decisions never call this.
            pub fn generate() -> Self {
                Self(Ulid::generate().0)
            }

            /// Creates the id with this ULID.
            pub const fn from_ulid(ulid: Ulid) -> Self {
                Self(ulid.0)
            }

            /// Returns the ULID without the prefix: 48 bits of milliseconds, 80 random bits.
            pub const fn ulid(self) -> Ulid {
                Ulid(self.0)
            }

            /// Returns the 128 bits, most significant first, for hashing and for key columns.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl Id for $name {
            const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = [0; ulid::ULID_LEN];
                f.write_str($prefix)?;
                f.write_str(Ulid(self.0).array_to_str(&mut buffer))
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_ulid(text, $prefix).map(Self)
            }
        }
    )*};
}

ids! {
    /// A payment service provider (the tenant).
    PspId = "psp_";
    /// A customer of a PSP.
    CustomerId = "cr_";
    /// A merchant of a PSP. Merchants are permanent.
    MerchantId = "merch_";
    /// A payment.
    PaymentId = "pay_";
    /// A payout to the wallet of a customer.
    PayoutId = "po_";
    /// A withdrawal to the wallet of a PSP.
    WithdrawalId = "wd_";
    /// A refund of a payment.
    RefundId = "rf_";
    /// A request of a payer for a refund.
    RefundRequestId = "rr_";
    /// A transfer to a recipient customer.
    TransferId = "tr_";
    /// A public event (the body of a webhook).
    EventId = "evt_";
    /// A webhook delivery.
    DeliveryId = "whd_";
    /// A webhook endpoint of a PSP.
    EndpointId = "we_";
    /// One movement of money on-chain. The chain and the database use the same id, so that it succeeds at most once.
    OperationId = "op_";
    /// An API key.
    KeyId = "key_";
    /// A check of a customer. The interface calls it a verification.
    CheckId = "ver_";
    /// A stored document of a customer.
    DocumentId = "doc_";
    /// An action of the operator that a second operator approves.
    ApprovalId = "apr_";
    /// One action of the operator on many subjects.
    BulkJobId = "blk_";
    /// One run of a process of the service.
    NodeId = "node_";
}

/// The low 80 bits of a ULID.
const RANDOM_MASK: u128 = (1 << 80) - 1;

/// Separates the ids of automatic refunds from the id of their payment, and from consecutive payment ids that a
/// monotonic generator creates. An arbitrary constant of 80 bits.
const EXCESS_REFUND_SALT: u128 = 0x9e37_79b9_7f4a_7c15_f39c;

impl PaymentId {
    /// Returns the logical shard, 0 to 255. It is taken from the random part, so that ids of the same millisecond
    /// spread over all shards.
    pub const fn shard(self) -> u8 {
        self.to_bytes()[15]
    }

    /// Returns the time of generation, by the wall clock of the process that generated the id.
    pub const fn made_at(self) -> Timestamp {
        #[allow(clippy::cast_possible_wrap, reason = "a ULID's time has 48 bits")]
        Timestamp(self.ulid().timestamp_ms() as i64)
    }

    /// Parses a public id, `pay_` or `tr_`, into the id of the payment.
    pub fn of_public(text: &str) -> Option<Self> {
        text.parse().ok().or_else(|| text.parse().ok().map(TransferId::payment))
    }
}

impl TransferId {
    /// Returns the id of the transfer that `payment` implements.
    pub const fn of(payment: PaymentId) -> Self {
        Self(payment.0)
    }

    /// Returns the id of the payment that implements this transfer.
    pub const fn payment(self) -> PaymentId {
        PaymentId(self.0)
    }
}

impl EndpointId {
    /// Returns the id of the PSP's first endpoint, the one that `set_webhook` sets.
    pub const fn first_of(psp: PspId) -> Self {
        Self(psp.0)
    }

    /// Returns the key of the endpoint's deliveries (`COALESCE(endpoint_id, psp_id)`): the PSP for its first endpoint, otherwise
    /// the endpoint.
    pub fn lane(self, psp: PspId) -> String {
        if self == Self::first_of(psp) { psp.to_string() } else { self.to_string() }
    }
}

impl OperationId {
    /// Returns the operation that settles `payment`. It never changes: after a reorganisation the same operation is
    /// used again.
    pub const fn settlement_of(payment: PaymentId) -> Self {
        Self(payment.0)
    }

    /// Returns the operation that sends `payout`.
    pub const fn payout_of(payout: PayoutId) -> Self {
        Self(payout.0)
    }

    /// Returns the operation that sends `withdrawal`.
    pub const fn withdrawal_of(withdrawal: WithdrawalId) -> Self {
        Self(withdrawal.0)
    }

    /// Returns the operation that sends `refund`.
    pub const fn refund_of(refund: RefundId) -> Self {
        Self(refund.0)
    }
}

impl RefundRequestId {
    /// Returns the id of the request that a payer signed at this time: the time, and the first bits of the hash of the signed
    /// message. So a message is one request, however often it is sent.
    pub fn signed(at: Timestamp, message_hash: Hash32) -> Self {
        let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = message_hash.0;
        let millis = u128::from(at.as_millis().unsigned_abs());
        Self((millis << 80) | (u128::from_be_bytes(head) & RANDOM_MASK))
    }
}

impl RefundId {
    /// Returns the id of the refund that answers `request`.
    pub const fn of_request(request: RefundRequestId) -> Self {
        Self(request.0)
    }

    /// Returns the id of the `ordinal`-th refund of `payment` when the excess policy creates it. The id is
    /// deterministic, because decisions are pure.
    pub(crate) fn automatic(payment: PaymentId, ordinal: usize) -> Self {
        let random = (payment.0 ^ EXCESS_REFUND_SALT).wrapping_add(ordinal as u128) & RANDOM_MASK;
        Self((payment.0 & !RANDOM_MASK) | random)
    }
}

named! {
    /// Permission of an API key.
    KeyScope, "read, payments, customers, money, webhooks, full" {
        /// Reads everything of the PSP.
        Read = "read",
        /// Creates and changes merchants and payments.
        Payments = "payments",
        /// Creates and changes customers.
        Customers = "customers",
        /// Moves money out.
        Money = "money",
        /// Changes the webhook endpoints and repeats deliveries.
        Webhooks = "webhooks",
        /// All of the others, and the settings.
        Full = "full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_round_trips_and_rejects_other_kinds() {
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
    fn operation_ids_derive_from_payments_and_refunds() {
        let payment = PaymentId::generate();
        let operation = OperationId::settlement_of(payment);
        assert_eq!(operation.to_string().strip_prefix("op_"), payment.to_string().strip_prefix("pay_"));
        let refunds: std::collections::BTreeSet<_> =
            (0..9).map(|n| OperationId::refund_of(RefundId::automatic(payment, n))).collect();
        assert_eq!(refunds.len(), 9);
        assert!(!refunds.contains(&operation));
    }

    #[test]
    fn shards_cover_all_256_values() {
        let shards: std::collections::BTreeSet<_> = (0..10_000).map(|_| PaymentId::generate().shard()).collect();
        assert_eq!(shards.len(), 256);
    }
}
