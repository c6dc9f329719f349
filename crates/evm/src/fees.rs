//! Fee offers of transactions. Pure.

use super::client::FeeMarket;
use super::config::FeeCeilings;

/// Fee offer of a transaction, wei per gas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fees {
    /// `maxFeePerGas`.
    pub max_fee_wei: u128,
    /// `maxPriorityFeePerGas`.
    pub priority_fee_wei: u128,
}

/// Error: the market fee, with the L1 charge, is above the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the required fee is {required_wei} wei per gas{l1} and the ceiling is {ceiling_wei}", l1 = l1_part(*.l1_wei))]
pub struct AboveCeiling {
    /// Required fee, with the L1 charge.
    pub required_wei: u128,
    /// L1 charge.
    pub l1_wei: u128,
    /// Configured ceiling.
    pub ceiling_wei: u128,
}

fn l1_part(l1_wei: u128) -> String {
    if l1_wei == 0 { String::new() } else { format!(", of which {l1_wei} for L1 data,") }
}

impl Fees {
    /// Offer for a first attempt: room for the base fee to double, plus the median priority fee. `l1_wei` is the L1
    /// charge per gas: together they are at most the ceiling.
    pub fn first(market: FeeMarket, l1_wei: u128, ceilings: FeeCeilings) -> Result<Self, AboveCeiling> {
        let priority_fee_wei =
            market.priority_fee_wei.max(ceilings.priority_fee_min_wei).min(ceilings.priority_fee_max_wei);
        let required_wei = market.base_fee_wei.saturating_add(priority_fee_wei).saturating_add(l1_wei);
        let ceiling_wei = ceilings.max_fee_wei;
        if required_wei > ceiling_wei {
            return Err(AboveCeiling { required_wei, l1_wei, ceiling_wei });
        }
        let roomy = market.base_fee_wei.saturating_mul(2).saturating_add(priority_fee_wei);
        Ok(Self { max_fee_wei: roomy.min(ceiling_wei.saturating_sub(l1_wei)), priority_fee_wei })
    }

    /// Offer for another attempt with the same nonce: both fees higher by at least an eighth, as nodes require for a
    /// replacement, and at least the offer of a first attempt now.
    pub fn raised(self, market: FeeMarket, l1_wei: u128, ceilings: FeeCeilings) -> Result<Self, AboveCeiling> {
        let raise = |fee: u128| fee.saturating_add((fee / 8).saturating_add(1));
        let first = Self::first(market, l1_wei, ceilings)?;
        let raised = Self {
            max_fee_wei: raise(self.max_fee_wei).max(first.max_fee_wei),
            priority_fee_wei: raise(self.priority_fee_wei).max(first.priority_fee_wei),
        };
        for (required_wei, l1_wei, ceiling_wei) in [
            (raised.max_fee_wei.saturating_add(l1_wei), l1_wei, ceilings.max_fee_wei),
            (raised.priority_fee_wei, 0, ceilings.priority_fee_max_wei.min(ceilings.max_fee_wei)),
        ] {
            if required_wei > ceiling_wei {
                return Err(AboveCeiling { required_wei, l1_wei, ceiling_wei });
            }
        }
        Ok(raised)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CEILINGS: FeeCeilings =
        FeeCeilings { max_fee_wei: 10_000, priority_fee_max_wei: 3_000, priority_fee_min_wei: 10 };

    #[test]
    fn first_attempt_has_room_and_respects_the_ceiling() {
        let market = |base_fee_wei, priority_fee_wei| FeeMarket { base_fee_wei, priority_fee_wei };
        let fees = Fees::first(market(1_000, 1), 0, CEILINGS).unwrap();
        assert_eq!(fees, Fees { max_fee_wei: 2_010, priority_fee_wei: 10 });
        assert_eq!(
            Fees::first(market(6_000, 9_999), 0, CEILINGS).unwrap(),
            Fees { max_fee_wei: 10_000, priority_fee_wei: 3_000 }
        );
        let above = Fees::first(market(9_995, 10), 0, CEILINGS).unwrap_err();
        assert_eq!(above, AboveCeiling { required_wei: 10_005, l1_wei: 0, ceiling_wei: 10_000 });
    }

    #[test]
    fn ceiling_includes_the_l1_charge() {
        let market = FeeMarket { base_fee_wei: 1_000, priority_fee_wei: 10 };
        let first = |l1_wei| Fees::first(market, l1_wei, CEILINGS);
        assert_eq!(first(7_000).unwrap().max_fee_wei, 2_010);
        assert_eq!(first(8_990).unwrap().max_fee_wei, 1_010, "less room");
        let above = AboveCeiling { required_wei: 10_001, l1_wei: 8_991, ceiling_wei: 10_000 };
        assert_eq!(first(8_991).unwrap_err(), above);
        assert_eq!(
            above.to_string(),
            "the required fee is 10001 wei per gas, of which 8991 for L1 data, and the ceiling is 10000"
        );
        assert_eq!(
            Fees { max_fee_wei: 2_010, priority_fee_wei: 10 }.raised(market, 8_000, CEILINGS).unwrap_err().l1_wei,
            8_000
        );
    }

    proptest! {
        #[test]
        fn raise_is_at_least_an_eighth_and_within_ceilings(
            max in 0_u128..12_000,
            tip in 0_u128..4_000,
            base in 0_u128..9_000,
            l1_wei in prop_oneof![Just(0), 0_u128..12_000],
        ) {
            let old = Fees { max_fee_wei: max, priority_fee_wei: tip };
            let market = FeeMarket { base_fee_wei: base, priority_fee_wei: tip };
            if let Ok(new) = old.raised(market, l1_wei, CEILINGS) {
                prop_assert!(new.max_fee_wei * 8 >= max * 9 && new.priority_fee_wei * 8 >= tip * 9);
                prop_assert!(new.max_fee_wei > max && new.priority_fee_wei > tip);
                prop_assert!(new.max_fee_wei + l1_wei <= CEILINGS.max_fee_wei);
                prop_assert!(new.priority_fee_wei <= CEILINGS.priority_fee_max_wei);
            }
        }
    }
}
