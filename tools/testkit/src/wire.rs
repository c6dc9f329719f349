//! Values of the interface as they appear on the wire: ids, amounts, chains, tokens and names.
//!
//! The tools have their own types, so that a defect of the service's types cannot hide itself from them.

use std::fmt;
use std::str::FromStr;

use serde_with::DeserializeFromStr;
use ulid::Ulid;

/// Base units of one token: every token has 6 decimals.
const UNITS_PER_TOKEN: i64 = 1_000_000;
const DECIMALS: usize = 6;

/// Text that is not a value of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct NotOnTheWire {
    text: String,
    expected: &'static str,
}

impl NotOnTheWire {
    /// Makes the error for a text.
    pub fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// Amount of a token in base units. The text form is decimal with at least two places ("10.00", "-0.5001").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, DeserializeFromStr)]
pub struct Amount(pub i64);

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest amount.
    pub const MAX: Self = Self(i64::MAX);

    /// Converts whole tokens, saturating.
    pub const fn from_tokens(tokens: i64) -> Self {
        Self(tokens.saturating_mul(UNITS_PER_TOKEN))
    }

    /// Returns the base units.
    pub const fn units(self) -> i64 {
        self.0
    }

    /// Returns the sum, saturating.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        let units = self.0.saturating_sub(other.0);
        Self(if units < 0 { 0 } else { units })
    }
}

impl FromStr for Amount {
    type Err = NotOnTheWire;

    fn from_str(text: &str) -> Result<Self, NotOnTheWire> {
        let bad = || NotOnTheWire::new(text, "an amount");
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) || fraction.len() > DECIMALS {
            return Err(bad());
        }
        let whole: i64 = whole.parse().map_err(|_| bad())?;
        let fraction: i64 = format!("{fraction:0<DECIMALS$}").parse().map_err(|_| bad())?;
        let units = whole.checked_mul(UNITS_PER_TOKEN).and_then(|units| units.checked_add(fraction));
        units.map(|units| Self(sign * units)).ok_or_else(bad)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (units, one) = (self.0.unsigned_abs(), UNITS_PER_TOKEN.unsigned_abs());
        let fraction = format!("{:0DECIMALS$}", units % one);
        let shown = fraction.trim_end_matches('0').len().max(2);
        f.pad(&format!("{sign}{}.{}", units / one, &fraction[..shown]))
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, DeserializeFromStr)]
        pub struct $name(Ulid);

        impl $name {
            /// Generates a new id.
            pub fn generate() -> Self {
                Self(Ulid::generate())
            }

            /// Returns the number that identifies it in the contract.
            pub const fn ulid(self) -> u128 {
                self.0.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }

        impl FromStr for $name {
            type Err = NotOnTheWire;

            fn from_str(text: &str) -> Result<Self, NotOnTheWire> {
                let bad = || NotOnTheWire::new(text, concat!("an id of the form ", $prefix, "<ULID>"));
                let digits = text.strip_prefix($prefix).ok_or_else(bad)?;
                let id = Ulid::from_string(digits).map_err(|_| bad())?;
                // The ULID parser also accepts lower case and look-alike letters. An id has one spelling only.
                if id.to_string() == digits { Ok(Self(id)) } else { Err(bad()) }
            }
        }
    )*};
}

ids! {
    /// Id of a PSP.
    PspId = "psp_";
    /// Id of a merchant.
    MerchantId = "merch_";
    /// Id of a customer.
    CustomerId = "cr_";
    /// Id of a payment.
    PaymentId = "pay_";
    /// Id of an event.
    EventId = "evt_";
}

/// Declares enums whose values have names: on the wire, in reports and on the command line.
#[macro_export]
macro_rules! names {
    ($(
        $(#[$doc:meta])*
        $name:ident, $expected:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::wire::NotOnTheWire;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
                found.ok_or_else(|| $crate::wire::NotOnTheWire::new(text, $expected))
            }
        }
    )*};
}

names! {
    /// A chain.
    Chain, "a chain (base, polygon, arbitrum)" {
        /// Base.
        Base = "base",
        /// Polygon PoS.
        Polygon = "polygon",
        /// Arbitrum One.
        Arbitrum = "arbitrum",
    }

    /// A token.
    Token, "a token (USDC, USDT)" {
        /// USDC.
        Usdc = "USDC",
        /// USDT.
        Usdt = "USDT",
    }

    /// Status of a payment.
    Status, "a payment status" {
        /// Waits for a transfer.
        Pending = "pending",
        /// Paid; settlement is in progress.
        Confirmed = "confirmed",
        /// Settled on-chain.
        Settled = "settled",
        /// The received amount does not match.
        Mismatched = "mismatched",
        /// Failed, for example expired.
        Failed = "failed",
    }

    /// Label of a payment. Only the labels that the tools expect.
    Label, "an expected label" {
        /// The received amount is too low.
        Underpaid = "UNDERPAID",
        /// The received amount is too high.
        Overpaid = "OVERPAID",
        /// A transfer arrived after the payment had expired.
        Late = "LATE",
        /// The payer signed an authorization.
        Authorized = "AUTHORIZED",
        /// A reorganisation of the chain removed a transfer or a settlement.
        Reorged = "REORGED",
    }

    /// Name of a webhook event. Only the events that the tools expect.
    EventName, "an expected event name" {
        /// The payment is paid.
        PaymentConfirmed = "payment.confirmed",
        /// The payment is settled.
        PaymentSettled = "payment.settled",
        /// The received amount does not match.
        PaymentMismatched = "payment.mismatched",
        /// The payment failed.
        PaymentFailed = "payment.failed",
        /// The chain dropped received money or a settlement.
        PaymentReorged = "payment.reorged",
        /// The pay-in is confirmed on-chain.
        PayinConfirmed = "payin.confirmed",
        /// The pay-in is settled.
        PayinSettled = "payin.settled",
        /// The pay-in failed.
        PayinFailed = "payin.failed",
        /// The pay-in does not match the expected amount.
        PayinMismatched = "payin.mismatched",
        /// The pay-in is too low.
        PayinUnderpaid = "payin.underpaid",
        /// The refund is final on-chain.
        RefundSent = "refund.sent",
        /// The payout was accepted.
        PayoutPending = "payout.pending",
        /// The payout is final on-chain.
        PayoutSent = "payout.sent",
        /// The withdrawal is final on-chain.
        WithdrawSent = "withdraw.sent",
    }
}

impl EventName {
    /// Returns true if it is about an outbound transfer.
    pub const fn is_of_outbound(self) -> bool {
        matches!(self, Self::RefundSent | Self::PayoutPending | Self::PayoutSent | Self::WithdrawSent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_decimals() {
        for (text, units) in [("10.00", 10_000_000), ("0.000001", 1), ("7", 7_000_000), ("-0.5001", -500_100)] {
            assert_eq!(text.parse::<Amount>().unwrap(), Amount(units), "{text}");
        }
        assert_eq!(Amount(-500_100).to_string(), "-0.5001");
        assert_eq!(Amount::from_tokens(10).to_string(), "10.00");
        for bad in ["", ".", "1.", ".5", "+1", "1e3", "1.0000001", " 1", "--1", "9223372036854.775808"] {
            assert!(bad.parse::<Amount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_have_one_spelling() {
        let id = PaymentId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
        let lower = format!("pay_{}", id.to_string()["pay_".len()..].to_lowercase());
        for bad in ["pay_", "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "01J9Z3K4M5N6P7Q8R9S0T1V2W3", lower.as_str()] {
            assert!(bad.parse::<PaymentId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_those_of_the_interface() {
        assert_eq!("arbitrum".parse(), Ok(Chain::Arbitrum));
        assert_eq!(serde_json::to_string(&Token::Usdt).unwrap(), "\"USDT\"");
        assert!("usdc".parse::<Token>().is_err());
    }
}
