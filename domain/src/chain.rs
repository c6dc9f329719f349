//! Chains, addresses, hashes, and the finality that an amount requires.
//!
//! Not here: token addresses (configuration), clients.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use sha3::{Digest as _, Keccak256};

use crate::money::Amount;
use crate::named::named;

named! {
    /// A supported chain, in the order of the interface.
    Chain, "base, polygon, arbitrum" {
        /// Base.
        Base = "base",
        /// Polygon PoS.
        Polygon = "polygon",
        /// Arbitrum One.
        Arbitrum = "arbitrum",
    }
}

impl Chain {
    /// The EIP-155 chain id of the main network; the configuration may name a test network instead.
    pub const fn default_id(self) -> u64 {
        match self {
            Self::Base => 8_453,
            Self::Polygon => 137,
            Self::Arbitrum => 42_161,
        }
    }
}

/// Error of a text that is not a hexadecimal value of the expected length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 0x and {digits} hexadecimal digits")]
pub struct HexError {
    /// Number of digits after `0x`.
    pub digits: usize,
}

macro_rules! hex_bytes {
    ($($(#[$doc:meta])* $name:ident($len:literal);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
        #[derive(derive_more::Debug)]
        #[debug("{}", self)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut digits = [0; 2 * $len];
                hex::encode_to_slice(self.0, &mut digits).map_err(|_| fmt::Error)?;
                f.write_str("0x")?;
                f.write_str(str::from_utf8(&digits).map_err(|_| fmt::Error)?)
            }
        }

        impl FromStr for $name {
            type Err = HexError;
            fn from_str(text: &str) -> Result<Self, HexError> {
                let mut bytes = [0; $len];
                let digits = text.strip_prefix("0x").ok_or(hex::FromHexError::InvalidStringLength);
                let decoded = digits.and_then(|digits| hex::decode_to_slice(digits, &mut bytes));
                decoded.map(|()| Self(bytes)).map_err(|_| HexError { digits: 2 * $len })
            }
        }

    )*};
}

hex_bytes! {
    /// An account or contract address: 20 bytes. Displayed as `0x` and lower-case hex; parsing accepts both cases.
    Address(20);
    /// A transaction or block hash: 32 bytes. Displayed as `0x` and lower-case hex; parsing accepts both cases.
    Hash32(32);
}

impl Address {
    /// Formats the address with its EIP-55 checksum: a letter is a capital if the same digit of the hash of the lower-case
    /// digits is at least 8.
    pub fn checksummed(self) -> String {
        let text = self.to_string();
        let hash = Keccak256::digest(text.trim_start_matches("0x"));
        let is_capital = |place: usize| hash[place / 2] >> (4 * (1 - place % 2)) & 0xf >= 8;
        let digits = text.chars().skip(2).enumerate();
        let cased = digits.map(|(place, digit)| if is_capital(place) { digit.to_ascii_uppercase() } else { digit });
        ["0x"].into_iter().flat_map(str::chars).chain(cased).collect()
    }
}

/// Finality of a block, ordered: a greater value is safer against a reorganisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finality {
    /// Number of blocks, counted from the block itself to the head: `Blocks(1)` is met in the head block, `Blocks(2)`
    /// with one block on top.
    Blocks(u32),
    /// At or below the chain's `safe` block.
    Safe,
    /// At or below the chain's `finalized` block.
    Finalized,
}

/// Progress of a chain: the last block read, and its finality tags. All numbers are of blocks that were read and
/// linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinalityProgress {
    /// The last block read.
    pub read: u64,
    /// Number of the newest `safe` block.
    pub safe: Option<u64>,
    /// Number of the newest `finalized` block.
    pub finalized: Option<u64>,
}

impl FinalityProgress {
    /// True if `block` has this finality. `Blocks(n)` counts the block itself as the first confirmation.
    pub fn reached(&self, block: u64, finality: Finality) -> bool {
        match finality {
            Finality::Blocks(_) if block > self.read => false,
            Finality::Blocks(needed) => self.confirmations(block) >= u64::from(needed.max(1)),
            Finality::Safe => self.safe.is_some_and(|safe| block <= safe.min(self.read)),
            Finality::Finalized => self.finalized.is_some_and(|finalized| block <= finalized.min(self.read)),
        }
    }

    /// Confirmations of `block`: 0 before it was read, 1 if it is the last one read.
    pub fn confirmations(&self, block: u64) -> u64 {
        (self.read + 1).saturating_sub(block)
    }
}

/// Finality that each amount requires, in three bands. Larger amounts need stricter finality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalityPolicy {
    /// Amounts below this limit need `small`.
    pub small_below: Amount,
    /// Finality for amounts below `small_below`.
    pub small: Finality,
    /// Amounts from `small_below` up to, but not including, this limit need `medium`.
    pub medium_below: Amount,
    /// Finality for amounts below `medium_below`.
    pub medium: Finality,
    /// Finality for all other amounts.
    pub large: Finality,
}

impl FinalityPolicy {
    /// Returns the default policy: a few blocks below 1,000, `safe` below 50,000, `finalized` above. Polygon uses
    /// `finalized` for all amounts, because a block is final there after about 5 s.
    pub const fn default_for(chain: Chain) -> Self {
        let (small, medium) = match chain {
            Chain::Base => (Finality::Blocks(2), Finality::Safe),
            Chain::Arbitrum => (Finality::Blocks(20), Finality::Safe),
            Chain::Polygon => (Finality::Finalized, Finality::Finalized),
        };
        let (small_below, medium_below) = (Amount::from_tokens(1_000), Amount::from_tokens(50_000));
        Self { small_below, small, medium_below, medium, large: Finality::Finalized }
    }

    /// Returns a policy that requires the same finality for every amount.
    pub const fn flat(finality: Finality) -> Self {
        let (small_below, medium_below) = (Amount::from_tokens(1_000), Amount::from_tokens(50_000));
        Self { small_below, small: finality, medium_below, medium: finality, large: finality }
    }

    /// Returns the policy of the sandbox: two blocks for every amount.
    pub const fn sandbox() -> Self {
        Self::flat(Finality::Blocks(2))
    }

    /// Raises each band to the strictest finality that `least` requires for any amount in that band. The result is
    /// never looser than either policy.
    #[must_use]
    pub fn at_least(self, least: Self) -> Self {
        let band = |from: Amount, below: Option<Amount>, own: Finality| {
            // The finality that `least` requires changes only at its own limits.
            let changes = [from, least.small_below, least.medium_below].into_iter();
            let within = changes.filter(|amount| *amount >= from && below.is_none_or(|below| *amount < below));
            within.map(|amount| least.required(amount)).fold(own, Finality::max)
        };
        Self {
            small: band(Amount::ZERO, Some(self.small_below), self.small),
            medium: band(self.small_below, Some(self.medium_below), self.medium),
            large: band(self.small_below.max(self.medium_below), None, self.large),
            ..self
        }
    }

    /// Returns the finality that `amount` requires. Callers pass max(payment amount, total received so far), so that a
    /// payer cannot split a large sum to stay in a lower band.
    pub fn required(&self, amount: Amount) -> Finality {
        if amount < self.small_below {
            self.small
        } else if amount < self.medium_below {
            self.medium
        } else {
            self.large
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_parses_both_cases_and_displays_lower_case() {
        let text = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
        let address: Address = text.parse().unwrap();
        assert_eq!(address.to_string(), text.to_lowercase());
        assert_eq!(serde_json::to_string(&address).unwrap(), format!("\"{}\"", text.to_lowercase()));
        for bad in ["", "0x", "833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x+33589fCD6eDb6E08f4c7C32D4f71b54bdA02913"]
        {
            assert_eq!(bad.parse::<Address>(), Err(HexError { digits: 40 }), "{bad}");
        }
        let hash = Hash32([0xab; 32]);
        assert_eq!(hash.to_string().parse::<Hash32>().unwrap(), hash);
    }

    /// The examples of EIP-55.
    #[test]
    fn addresses_have_checksums() {
        for text in [
            "0x52908400098527886E0F7030069857D2E4169EE7",
            "0xde709f2102306220921060314715629080e2fb77",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
            "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().checksummed(), text);
        }
    }

    #[test]
    fn finality_is_ordered() {
        assert!(Finality::Blocks(u32::MAX) < Finality::Safe && Finality::Safe < Finality::Finalized);
        assert!(Finality::Blocks(2) < Finality::Blocks(20));
    }

    #[test]
    fn default_policy_matches_the_documented_tiers() {
        let base = FinalityPolicy::default_for(Chain::Base);
        assert_eq!(base.required(Amount::from_tokens(999)), Finality::Blocks(2));
        assert_eq!(base.required(Amount::from_tokens(1_000)), Finality::Safe);
        assert_eq!(base.required(Amount::from_tokens(50_000)), Finality::Finalized);
        let arbitrum = FinalityPolicy::default_for(Chain::Arbitrum);
        assert_eq!(arbitrum.required(Amount(1)), Finality::Blocks(20));
        assert_eq!(FinalityPolicy::default_for(Chain::Polygon).required(Amount(1)), Finality::Finalized);
        assert_eq!(FinalityPolicy::sandbox().required(AMOUNT), Finality::Blocks(2));
        assert_eq!("polygon".parse::<Chain>().unwrap(), Chain::Polygon);
        assert!("Base".parse::<Chain>().is_err());
    }

    #[test]
    fn at_least_raises_tiers_for_every_amount() {
        let least = FinalityPolicy::default_for(Chain::Base);
        // Given a policy with other limits, when it is raised, then no amount needs less than either policy requires.
        let own = FinalityPolicy {
            small_below: Amount::from_tokens(2_000),
            small: Finality::Blocks(5),
            medium_below: Amount::from_tokens(20_000),
            medium: Finality::Finalized,
            large: Finality::Safe,
        };
        let raised = own.at_least(least);
        assert_eq!(raised, FinalityPolicy { small: Finality::Safe, large: Finality::Finalized, ..own });
        // Given a policy that is nowhere looser, then it does not change.
        for kept in [least, FinalityPolicy::flat(Finality::Finalized), raised] {
            assert_eq!(kept.at_least(least), kept);
        }
        // Given an empty band, then it does not change.
        let no_medium = FinalityPolicy { medium_below: own.small_below, medium: Finality::Blocks(1), ..raised };
        assert_eq!(no_medium.at_least(least), no_medium);
        let none_small = FinalityPolicy { small_below: Amount::ZERO, small: Finality::Blocks(1), ..raised };
        assert_eq!(none_small.at_least(least), none_small);
    }

    proptest::proptest! {
        #[test]
        fn raised_tiers_are_never_looser(own in any_policy(), least in any_policy(), amount in 0_i64..60) {
            let (raised, amount) = (own.at_least(least), Amount(amount));
            proptest::prop_assert!(raised.required(amount) >= own.required(amount).max(least.required(amount)));
            proptest::prop_assert_eq!(raised.at_least(least), raised);
        }
    }

    fn any_policy() -> impl proptest::strategy::Strategy<Value = FinalityPolicy> {
        use proptest::prelude::*;
        let finality = || {
            prop::sample::select(vec![Finality::Blocks(2), Finality::Blocks(9), Finality::Safe, Finality::Finalized])
        };
        (0_i64..50, 0_i64..50, finality(), finality(), finality()).prop_map(|(one, other, small, medium, large)| {
            let (small_below, medium_below) = (Amount(one.min(other)), Amount(one.max(other)));
            FinalityPolicy { small_below, small, medium_below, medium, large }
        })
    }

    const AMOUNT: Amount = Amount::from_tokens(1_000_000);

    #[test]
    fn the_block_itself_is_the_first_confirmation() {
        let reach = FinalityProgress { read: 10, safe: Some(7), finalized: Some(3) };
        assert!(reach.reached(10, Finality::Blocks(1)) && !reach.reached(10, Finality::Blocks(2)));
        assert!(reach.reached(9, Finality::Blocks(2)) && !reach.reached(11, Finality::Blocks(0)));
        assert!(reach.reached(7, Finality::Safe) && !reach.reached(8, Finality::Safe));
        assert!(reach.reached(3, Finality::Finalized) && !reach.reached(4, Finality::Finalized));
        assert_eq!(reach.confirmations(12), 0);
    }

    #[test]
    fn unread_blocks_are_not_final() {
        let reach = FinalityProgress { read: 5, safe: Some(9), finalized: Some(8) };
        assert!(!reach.reached(6, Finality::Safe) && !reach.reached(6, Finality::Finalized));
        let unknown = FinalityProgress { read: 5, safe: None, finalized: None };
        assert!(!unknown.reached(1, Finality::Safe) && !unknown.reached(1, Finality::Finalized));
    }
}
