//! Money in base units of tokens with 6 decimals, fees, and tolerances.
//!
//! Every supported token has 6 decimals, so one integer type is enough. Not here: floats, rounding of input, exchange
//! rates.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named::named;

/// Decimals of every supported token.
pub const DECIMALS: u32 = 6;
/// Base units of one token.
pub const UNITS_PER_TOKEN: i64 = 1_000_000;
/// Smallest amount of a payment: 0.01.
pub const AMOUNT_MIN: Amount = Amount(10_000);
/// Largest amount of a payment: 1,000,000.
pub const AMOUNT_MAX: Amount = Amount(1_000_000 * UNITS_PER_TOKEN);
/// Basis points in 100 %.
pub const BPS_WHOLE: u16 = 10_000;
/// Longest text that is parsed as an amount, in bytes.
const TEXT_LEN_MAX: usize = 32;

/// An amount of a token in base units (10^-6).
///
/// `Display` and `FromStr` use decimal text, with two to six decimals ("10.00", "10.123456"). Use them at the
/// interfaces. Serde uses the integer, for stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub i64);

/// Error of a text that is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The text is empty, contains a character that is not a digit or a single decimal point (a sign, an exponent, a
    /// space), or begins with a superfluous zero.
    #[error("an amount is written as digits without leading zeros, with an optional fraction, such as \"10.50\"")]
    Malformed,
    /// The text has more than six decimals. Input is never rounded.
    #[error("an amount has at most 6 decimals")]
    TooManyDecimals,
    /// The amount does not fit into 64 bits, or the text is longer than any amount.
    #[error("the amount is too large")]
    TooLarge,
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Largest value that the type can hold.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates an amount from base units.
    pub const fn from_units(units: i64) -> Self {
        Self(units)
    }

    /// Creates an amount from whole tokens, saturating. For constants and tests.
    pub const fn from_tokens(tokens: i64) -> Self {
        Self(tokens.saturating_mul(UNITS_PER_TOKEN))
    }

    /// Returns the base units.
    pub const fn units(self) -> i64 {
        self.0
    }

    /// Returns true if the amount is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Adds; returns `None` on overflow.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// Subtracts; returns `None` if the result would be negative.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(units) if units >= 0 => Some(Self(units)),
            _ => None,
        }
    }

    /// Adds; the result is at most [`Amount::MAX`]. For totals of untrusted amounts, which must never wrap.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts; the result is at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        let units = self.0.saturating_sub(other.0);
        Self(if units < 0 { 0 } else { units })
    }
}

impl std::iter::Sum for Amount {
    /// Saturates at [`Amount::MAX`].
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return Err(AmountError::Malformed),
            Some(parts) => parts,
            None => (text, ""),
        };
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || has_leading_zero || !digits(whole) || !digits(fraction) {
            return Err(AmountError::Malformed);
        }
        if text.len() > TEXT_LEN_MAX {
            return Err(AmountError::TooLarge);
        }
        if fraction.len() > DECIMALS as usize {
            return Err(AmountError::TooManyDecimals);
        }
        let whole: i64 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        let fraction: i64 = format!("{fraction:0<6}").parse().map_err(|_| AmountError::Malformed)?;
        let units = whole.checked_mul(UNITS_PER_TOKEN).and_then(|units| units.checked_add(fraction));
        units.map(Self).ok_or(AmountError::TooLarge)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        let one = UNITS_PER_TOKEN.unsigned_abs();
        let fraction = format!("{:06}", units % one);
        let kept = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{sign}{}.{}", units / one, &fraction[..kept])
    }
}

named! {
    /// A supported token.
    Token, "USDC, USDT" {
        /// Circle's USDC.
        Usdc = "USDC",
        /// Tether's USDT (USDT0 on chains that have it).
        Usdt = "USDT",
    }
}

/// Error of an unknown name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}")]
pub struct UnknownName {
    /// Allowed names, for the error message.
    pub expected: &'static str,
}

/// A fee in basis points, 0 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Into)]
#[serde(try_from = "u16", into = "u16")]
pub struct FeeBps(u16);

impl FeeBps {
    /// Fee of a PSP without a fee of its own: 1 %.
    pub const DEFAULT: Self = Self(100);
    /// No fee.
    pub const ZERO: Self = Self(0);

    /// Creates a fee; returns `None` above 10,000.
    pub const fn new(bps: u16) -> Option<Self> {
        if bps <= BPS_WHOLE { Some(Self(bps)) } else { None }
    }

    /// Returns the basis points.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for FeeBps {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u16> for FeeBps {
    type Error = &'static str;
    fn try_from(bps: u16) -> Result<Self, Self::Error> {
        Self::new(bps).ok_or("a fee is at most 10000 basis points")
    }
}

/// Returns `floor(amount * bps / 10000)`. Exact for every amount.
fn bps_of(amount: Amount, bps: u16) -> Amount {
    let units = i128::from(amount.0) * i128::from(bps) / i128::from(BPS_WHOLE);
    Amount(i64::try_from(units).unwrap_or(i64::MAX))
}

/// Shares of a settled amount. They always add up to the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Share of the PSP's vault.
    pub psp_amount: Amount,
    /// Share of the treasury: `floor(amount * fee_bps / 10000)`.
    pub treasury_fee: Amount,
}

/// Splits a settled amount between the PSP and the treasury.
pub fn split_fee(amount: Amount, fee: FeeBps) -> Split {
    let treasury_fee = bps_of(amount, fee.get());
    Split { psp_amount: Amount(amount.0 - treasury_fee.0), treasury_fee }
}

/// Difference to the amount due that is accepted: the greater of the two fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tolerance {
    /// Absolute difference.
    pub absolute: Amount,
    /// Difference in basis points of the amount due, at most 10,000.
    pub bps: u16,
}

impl Tolerance {
    /// Returns the least amount that pays `amount`. It is at least one base unit.
    pub fn least_for(self, amount: Amount) -> Amount {
        amount.saturating_sub(self.allowed(amount)).max(Amount(1))
    }

    /// Returns the greatest amount that is not more than `amount`.
    pub fn most_for(self, amount: Amount) -> Amount {
        amount.saturating_add(self.allowed(amount))
    }

    fn allowed(self, amount: Amount) -> Amount {
        self.absolute.max(bps_of(amount, self.bps.min(BPS_WHOLE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amount_parsing_is_strict() {
        let ok = |text: &str| text.parse::<Amount>().unwrap().units();
        assert_eq!(ok("10"), 10_000_000);
        assert_eq!(ok("0.000001"), 1);
        assert_eq!(ok("0.5"), 500_000);
        assert_eq!(ok("0"), 0);
        let err = |text: &str| text.parse::<Amount>().unwrap_err();
        for text in [
            "", ".", "1.", ".5", "+1", "-1", "1e3", " 1", "1 ", "1,0", "NaN", "inf", "1.2.3", "0x1", "١", "1_0", "00",
            "01.00", "007.5", "00.5",
        ] {
            assert_eq!(err(text), AmountError::Malformed, "{text}");
        }
        assert_eq!(err("1.1234567"), AmountError::TooManyDecimals);
        assert_eq!(err("1.1000000"), AmountError::TooManyDecimals);
        assert_eq!(err(&"9".repeat(40)), AmountError::TooLarge);
        assert_eq!(err("9223372036855"), AmountError::TooLarge);
        assert_eq!(ok("9223372036854.775807"), i64::MAX);
    }

    #[test]
    fn amounts_display_with_two_to_six_decimals() {
        let shown = |units| Amount(units).to_string();
        assert_eq!(shown(10_000_000), "10.00");
        assert_eq!(shown(10_123_456), "10.123456");
        assert_eq!(shown(10_120_000), "10.12");
        assert_eq!(shown(1), "0.000001");
        assert_eq!(shown(0), "0.00");
        assert_eq!(shown(-1_500_000), "-1.50");
    }

    #[test]
    fn tolerance_uses_the_greater_allowance() {
        let least =
            |absolute, bps, amount| Tolerance { absolute: Amount(absolute), bps }.least_for(Amount(amount)).units();
        assert_eq!(least(0, 0, 100), 100);
        assert_eq!(least(5, 100, 100), 95);
        assert_eq!(least(0, 1_000, 100), 90);
        assert_eq!(least(500, 0, 100), 1, "zero never pays a payment");
    }

    proptest! {
        #[test]
        fn split_adds_up_to_the_amount(units in 0..=i64::MAX, bps in 0..=10_000u16) {
            let split = split_fee(Amount(units), FeeBps::new(bps).unwrap());
            prop_assert_eq!(split.psp_amount.0 + split.treasury_fee.0, units);
            prop_assert!(split.psp_amount.0 >= 0 && split.treasury_fee.0 >= 0);
        }

        #[test]
        fn displayed_amounts_parse_back(units in 0..=i64::MAX) {
            prop_assert_eq!(Amount(units).to_string().parse::<Amount>(), Ok(Amount(units)));
        }
    }
}
