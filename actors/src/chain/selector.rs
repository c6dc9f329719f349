//! Selection of the chain for a payment with `chain = best`.
//!
//! Pure apart from reading the chains' views. The cheapest healthy chain is chosen. The result gives the reason for
//! every candidate, so that a PSP can follow the choice.

use std::collections::HashSet;

use parking_lot::RwLock;
use payferry_contracts::SETTLE_ITEM_GAS_TYPICAL;
use payferry_domain::payment::ChainCandidate;
use payferry_domain::{Address, Chain, Timestamp, Token};
use payferry_evm::config::ChainSpec;

use super::watchlist::Watchlist;

/// Selects among the configured chains.
#[derive(Debug)]
pub struct Selector {
    specs: Vec<ChainSpec>,
    coin_prices: Vec<(Chain, u64)>,
    watchlist: Watchlist,
    paused: RwLock<HashSet<Chain>>,
}

/// Result of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chain.
    pub chain: Chain,
    /// The token's contract there.
    pub token_address: Address,
    /// All chains that were considered.
    pub candidates: Vec<ChainCandidate>,
}

/// No chain can accept the payment now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no chain can currently accept {token}")]
pub struct NoChain {
    /// The requested token.
    pub token: Token,
    /// The reason for each chain.
    pub candidates: Vec<ChainCandidate>,
}

/// Approximate prices of native coins in whole dollars, only for comparing costs.
const COIN_PRICES_USD: [(Chain, u64); 3] = [(Chain::Base, 3_000), (Chain::Polygon, 1), (Chain::Arbitrum, 3_000)];
/// Wei per millionth of a coin.
const WEI_PER_MICRO_COIN: u128 = 1_000_000_000_000;

impl Selector {
    /// Creates a selector over these chains. Ties go to the first.
    pub fn new(specs: Vec<ChainSpec>, watchlist: Watchlist) -> Self {
        Self { specs, coin_prices: COIN_PRICES_USD.to_vec(), watchlist, paused: RwLock::default() }
    }

    /// Replaces the native coin prices (whole dollars).
    #[must_use]
    pub fn with_coin_prices(mut self, prices: Vec<(Chain, u64)>) -> Self {
        self.coin_prices = prices;
        self
    }

    /// Configuration of the chain.
    pub fn spec(&self, chain: Chain) -> Option<&ChainSpec> {
        self.specs.iter().find(|spec| spec.chain == chain)
    }

    /// Excludes a chain from selection, or includes it again.
    pub fn set_paused(&self, chain: Chain, paused: bool) {
        let mut set = self.paused.write();
        if paused {
            set.insert(chain);
        } else {
            set.remove(&chain);
        }
    }

    /// True if an operator excluded the chain.
    pub fn is_paused(&self, chain: Chain) -> bool {
        self.paused.read().contains(&chain)
    }

    /// The cheapest chain that supports `token` and is neither stale, unread nor paused.
    pub fn best(&self, token: Token, now: Timestamp) -> Result<Choice, NoChain> {
        let weighed: Vec<_> = self.specs.iter().map(|spec| (spec, self.settlement_cost(spec, token, now))).collect();
        let cheapest = weighed.iter().filter_map(|(spec, weight)| Some((*weight.as_ref().ok()?, *spec)));
        let chosen = cheapest.min_by_key(|(cost, _)| *cost).map(|(_, spec)| spec.chain);
        let candidates = weighed
            .iter()
            .map(|(spec, weight)| {
                let cost = weight.as_ref().map(|cost| format!("a settlement costs about ${}", micro_usd(*cost)));
                let reason = match cost {
                    Ok(cost) if Some(spec.chain) == chosen => format!("chosen: {cost}"),
                    Ok(reason) => reason,
                    Err(reason) => reason.clone(),
                };
                ChainCandidate { chain: spec.chain, eligible: weight.is_ok(), reason }
            })
            .collect();
        let chosen = chosen.and_then(|chain| Some((chain, self.spec(chain)?.token_address(token)?)));
        match chosen {
            Some((chain, token_address)) => Ok(Choice { chain, token_address, candidates }),
            None => Err(NoChain { token, candidates }),
        }
    }

    /// Cost of one settlement in millionths of a dollar, or the reason why the chain is not eligible.
    fn settlement_cost(&self, spec: &ChainSpec, token: Token, now: Timestamp) -> Result<u128, String> {
        if spec.token_address(token).is_none() {
            return Err(format!("{token} is not taken there"));
        }
        if self.is_paused(spec.chain) {
            return Err("paused by the operator".to_owned());
        }
        let Some(view) = self.watchlist.view(spec.chain) else {
            return Err("not read yet".to_owned());
        };
        if view.is_stale(now) {
            return Err(format!("its last block is {} s old", view.head_age_ms(now) / 1_000));
        }
        if view.trouble.is_some() {
            return Err("cannot be read at the moment".to_owned());
        }
        let price = self.coin_prices.iter().find(|(chain, _)| *chain == spec.chain).map_or(1, |(_, usd)| *usd);
        let fee_wei = view.base_fee_wei.saturating_add(spec.fees.priority_fee_min_wei);
        let wei = fee_wei.saturating_mul(u128::from(SETTLE_ITEM_GAS_TYPICAL));
        Ok(wei.saturating_mul(u128::from(price)) / WEI_PER_MICRO_COIN)
    }
}

fn micro_usd(micros: u128) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use payferry_domain::Hash32;

    use super::super::watchlist::ChainView;
    use super::*;

    fn view(chain: Chain, base_fee_wei: u128, head_secs: i64) -> ChainView {
        ChainView {
            chain,
            head_number: 1,
            head_time: Timestamp::from_secs(head_secs),
            read_number: 1,
            read_hash: Hash32([0; 32]),
            read_time: Timestamp::from_secs(head_secs),
            safe: None,
            finalized: None,
            base_fee_wei,
            trouble: None,
            outage: Duration::from_secs(30),
            blocks: Arc::default(),
        }
    }

    fn selector() -> (Selector, Watchlist) {
        let list = Watchlist::new();
        let token = |byte| vec![(Token::Usdc, Address([byte; 20]))];
        let spec = |chain, byte| ChainSpec::new(chain, Address([9; 20]), Address([8; 20]), token(byte)).sandbox();
        let specs = vec![spec(Chain::Base, 1), spec(Chain::Polygon, 2), spec(Chain::Arbitrum, 3)];
        (Selector::new(specs, list.clone()), list)
    }

    #[test]
    fn chooses_the_cheapest_fresh_chain_and_gives_reasons_for_all() {
        let (selector, list) = selector();
        let now = Timestamp::from_secs(1_000);
        list.set_view(view(Chain::Base, 10_000_000, 999));
        list.set_view(view(Chain::Polygon, 50_000_000_000, 999));
        list.set_view(view(Chain::Arbitrum, 5_000_000, 969));
        let choice = selector.best(Token::Usdc, now).unwrap();
        assert_eq!((choice.chain, choice.token_address), (Chain::Base, Address([1; 20])));
        let eligible: Vec<bool> = choice.candidates.iter().map(|candidate| candidate.eligible).collect();
        assert_eq!(eligible, [true, true, false]);
        assert_eq!(choice.candidates[2].reason, "its last block is 31 s old");
        assert_eq!(choice.candidates[1].reason, "a settlement costs about $0.003250");
        assert!(choice.candidates[0].reason.starts_with("chosen: "));

        list.set_view(view(Chain::Arbitrum, 5_000_000, 971));
        assert_eq!(selector.best(Token::Usdc, now).unwrap().chain, Chain::Arbitrum);
        selector.set_paused(Chain::Arbitrum, true);
        assert_eq!(selector.best(Token::Usdc, now).unwrap().chain, Chain::Base);
    }

    #[test]
    fn no_chain_error_gives_a_reason_for_each_chain() {
        let (selector, _) = selector();
        let none = selector.best(Token::Usdt, Timestamp::from_secs(0)).unwrap_err();
        assert!(none.candidates.iter().all(|candidate| candidate.reason == "USDT is not taken there"));
        let none = selector.best(Token::Usdc, Timestamp::from_secs(0)).unwrap_err();
        assert!(none.candidates.iter().all(|candidate| candidate.reason == "not read yet"));
    }
}
