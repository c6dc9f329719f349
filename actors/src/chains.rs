//! The configured chains: configuration, state and settler of each, and the selection of the chain for a payment with
//! `chain = best`.
//!
//! The cheapest healthy chain is chosen. The result gives the reason for every candidate, so that a PSP can follow the
//! choice.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_contracts::SETTLE_ITEM_GAS_TYPICAL;
use payferry_domain::payment::{ChainCandidate, ObservedTransfer};
use payferry_domain::{Amount, Asset, Chain, Timestamp, Token};
use payferry_entities::{Database, transfers};
use payferry_evm::ChainSpec;
use payferry_evm::wallet::Vaults;
use payferry_journal::chain::rows::{self, LoadError};

use crate::chain::metrics;
use crate::chain::{ChainView, HeldTransfer, SettlerHandle, Watchlist};

/// Approximate prices of native coins in whole dollars, only for comparing costs.
const fn coin_price_usd(chain: Chain) -> u128 {
    match chain {
        Chain::Base | Chain::Arbitrum => 3_000,
        Chain::Polygon => 1,
    }
}

/// Wei per millionth of a coin.
const WEI_PER_MICRO_COIN: u128 = 1_000_000_000_000;

/// Configured chains, shared by payments, HTTP and the supervisors.
#[derive(Debug)]
pub struct Chains {
    specs: Vec<ChainSpec>,
    watchlist: Watchlist,
    settlers: BTreeMap<Chain, SettlerHandle>,
    vaults: BTreeMap<Chain, Vaults>,
}

impl Chains {
    /// Creates the chains that passed their checks. Of equally cheap ones, the first is selected.
    pub(crate) fn new(specs: Vec<ChainSpec>) -> Self {
        Self {
            watchlist: Watchlist::default(),
            settlers: specs.iter().map(|spec| (spec.chain, SettlerHandle::default())).collect(),
            vaults: specs.iter().map(|spec| (spec.chain, Vaults::new(spec.contract))).collect(),
            specs,
        }
    }

    /// Configuration of a chain; `None` if it is not configured.
    pub fn spec(&self, chain: Chain) -> Option<&ChainSpec> {
        self.specs.iter().find(|spec| spec.chain == chain)
    }

    /// Vault addresses of a chain; `None` if it is not configured.
    pub(crate) fn vaults(&self, chain: Chain) -> Option<Vaults> {
        self.vaults.get(&chain).copied()
    }

    /// View of a chain at its last poll.
    pub fn view(&self, chain: Chain) -> Option<ChainView> {
        self.watchlist.view(chain)
    }

    /// Final transfers of large payments on which two endpoints do not agree.
    pub fn held_transfers(&self) -> Vec<HeldTransfer> {
        self.running().flat_map(|spec| self.watchlist.held(spec.chain)).collect()
    }

    /// Number of watched wallets: of live payments, and of payments that ended recently.
    pub fn wallets_watched(&self) -> usize {
        self.watchlist.wallets_len()
    }

    /// Exports the age of each chain's newest block, even while its watcher waits, and the number of watched wallets.
    pub(crate) fn refresh_metrics(&self, now: Timestamp) {
        metrics::WALLETS_WATCHED.set_count(&[], self.wallets_watched() as u64);
        for view in self.running().filter_map(|spec| self.view(spec.chain)) {
            metrics::head_age(&view, now);
        }
    }

    /// Reason why a chain cannot currently be read, if any; known even before the first read.
    pub fn degraded_reason(&self, chain: Chain) -> Option<String> {
        self.watchlist.degraded_reason(chain)
    }

    /// The configured chains, in their usual order.
    pub fn running(&self) -> impl Iterator<Item = &ChainSpec> {
        Chain::ALL.into_iter().filter_map(|chain| self.spec(chain))
    }

    /// Largest amount of one outbound transfer: the PSP's limit or the contract's, whichever is lower.
    pub(crate) fn send_max(&self, of_psp: Amount, asset: Asset) -> Amount {
        self.watchlist.send_max(asset).map_or(of_psp, |of_contract| of_psp.min(of_contract))
    }

    pub(crate) fn watchlist(&self) -> &Watchlist {
        &self.watchlist
    }

    /// Settler of a chain: its pauses and counts. The handle stays the same when the settler is restarted.
    pub fn settler(&self, chain: Chain) -> Option<&SettlerHandle> {
        self.settlers.get(&chain)
    }

    /// The longest time that operations of a chain have waited behind full batches of this node's settler.
    pub(crate) fn settler_delay(&self) -> Duration {
        self.settlers.values().map(SettlerHandle::queue_delay).max().unwrap_or_default()
    }

    pub(crate) fn nudge_settler(&self, chain: Chain) {
        if let Some(settler) = self.settlers.get(&chain) {
            settler.nudge();
        }
    }

    pub(crate) fn nudge_settlers(&self) {
        self.settlers.values().for_each(SettlerHandle::nudge);
    }

    /// Has every settler send again the outcomes that payments and outbound transfers have not applied: messages may have
    /// been lost.
    pub(crate) fn repeat_outcomes(&self) {
        self.settlers.values().for_each(SettlerHandle::repeat_outcomes);
    }

    /// Facts in rows of transfers, for their payments, oldest block first.
    pub(crate) async fn facts(
        &self,
        database: &Database,
        rows: &[transfers::Model],
    ) -> Result<Vec<ObservedTransfer>, LoadError> {
        let mut facts = Vec::with_capacity(rows.len());
        for spec in self.running() {
            let of_chain: Vec<_> = rows.iter().filter(|row| row.chain == spec.chain.as_str()).cloned().collect();
            if !of_chain.is_empty() {
                let found = rows::facts(database, spec.chain, |address| spec.token_at(address), &of_chain).await?;
                facts.extend(found.into_iter().map(|(_, fact)| fact));
            }
        }
        Ok(facts)
    }

    /// The cheapest chain that supports `token` and is neither stale, unread nor paused, if any; and all chains that were
    /// considered, with the reasons.
    pub(crate) fn best(
        &self,
        token: Token,
        now: Timestamp,
        is_paused: impl Fn(Chain) -> bool,
    ) -> (Option<Chain>, Vec<ChainCandidate>) {
        let cost = |spec: &ChainSpec| (spec.chain, self.settlement_cost(spec, token, now, is_paused(spec.chain)));
        let weighed: Vec<_> = self.specs.iter().map(cost).collect();
        let eligible = weighed.iter().filter_map(|(chain, cost)| Some((*cost.as_ref().ok()?, *chain)));
        let chosen = eligible.min_by_key(|(cost, _)| *cost).map(|(_, chain)| chain);
        let candidate = |(chain, cost): (Chain, Result<u128, String>)| {
            let is_chosen = if Some(chain) == chosen { "chosen: " } else { "" };
            let costs = |micros| format!("{is_chosen}a settlement costs about ${}", micro_usd(micros));
            let eligible = cost.is_ok();
            ChainCandidate { chain, eligible, reason: cost.map_or_else(|reason| reason, costs) }
        };
        (chosen, weighed.into_iter().map(candidate).collect())
    }

    /// Cost of one settlement in millionths of a dollar, or the reason why the chain is not eligible.
    fn settlement_cost(&self, spec: &ChainSpec, token: Token, now: Timestamp, is_paused: bool) -> Result<u128, String> {
        if spec.token_address(token).is_none() {
            return Err(format!("{token} is not taken there"));
        }
        if is_paused {
            return Err("paused by the operator".to_owned());
        }
        let Some(view) = self.watchlist.view(spec.chain) else {
            return Err("not read yet".to_owned());
        };
        if view.is_stale(now) {
            return Err(format!("its last block is {} s old", view.head_age_ms(now) / 1_000));
        }
        if view.degraded_reason.is_some() {
            return Err("cannot be read at the moment".to_owned());
        }
        let Some(l1_fee_wei) = view.l1_fee_wei else {
            return Err("its L1 data fee is not known yet".to_owned());
        };
        let fee_wei = view.base_fee_wei.saturating_add(spec.fees.priority_fee_min_wei);
        let wei = fee_wei.saturating_mul(u128::from(SETTLE_ITEM_GAS_TYPICAL)).saturating_add(l1_fee_wei);
        Ok(wei.saturating_mul(coin_price_usd(spec.chain)) / WEI_PER_MICRO_COIN)
    }
}

fn micro_usd(micros: u128) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use payferry_domain::{Address, Hash32};

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
            l1_fee_wei: Some(0),
            degraded_reason: None,
            outage: Duration::from_secs(30),
            blocks: Arc::default(),
        }
    }

    fn chains() -> Chains {
        let token = |byte| vec![(Token::Usdc, Address([byte; 20]))];
        let spec = |chain, byte| ChainSpec::new(chain, Address([9; 20]), Address([8; 20]), token(byte)).sandbox();
        Chains::new(vec![spec(Chain::Base, 1), spec(Chain::Polygon, 2), spec(Chain::Arbitrum, 3)])
    }

    #[test]
    fn chooses_the_cheapest_fresh_chain_and_gives_reasons_for_all() {
        let (chains, now) = (chains(), Timestamp::from_secs(1_000));
        let list = chains.watchlist();
        list.set_view(view(Chain::Base, 10_000_000, 999));
        list.set_view(view(Chain::Polygon, 50_000_000_000, 999));
        list.set_view(view(Chain::Arbitrum, 5_000_000, 969));
        let (chosen, candidates) = chains.best(Token::Usdc, now, |_| false);
        assert_eq!(chosen, Some(Chain::Base));
        let eligible: Vec<bool> = candidates.iter().map(|candidate| candidate.eligible).collect();
        assert_eq!(eligible, [true, true, false]);
        assert_eq!(candidates[2].reason, "its last block is 31 s old");
        assert_eq!(candidates[1].reason, "a settlement costs about $0.004500");
        assert!(candidates[0].reason.starts_with("chosen: "));
        assert_eq!(chains.spec(Chain::Base).unwrap().token_address(Token::Usdc), Some(Address([1; 20])));

        list.set_view(view(Chain::Arbitrum, 5_000_000, 971));
        assert_eq!(chains.best(Token::Usdc, now, |_| false).0, Some(Chain::Arbitrum));
        assert_eq!(chains.best(Token::Usdc, now, |chain| chain == Chain::Arbitrum).0, Some(Chain::Base));

        let l1_fee = |wei| list.set_view(ChainView { l1_fee_wei: wei, ..view(Chain::Arbitrum, 5_000_000, 971) });
        l1_fee(Some(600_000_000_000));
        let (chosen, candidates) = chains.best(Token::Usdc, now, |_| false);
        assert_eq!((chosen, candidates[2].eligible), (Some(Chain::Base), true), "the L1 data fee counts");
        l1_fee(None);
        let (chosen, candidates) = chains.best(Token::Usdc, now, |_| false);
        assert_eq!((chosen, candidates[2].eligible), (Some(Chain::Base), false));
        assert_eq!(candidates[2].reason, "its L1 data fee is not known yet");
    }

    #[test]
    fn without_an_eligible_chain_each_gives_its_reason() {
        for (token, reason) in [(Token::Usdt, "USDT is not taken there"), (Token::Usdc, "not read yet")] {
            let (chosen, candidates) = chains().best(token, Timestamp::from_secs(0), |_| false);
            assert_eq!(chosen, None);
            assert!(candidates.iter().all(|candidate| candidate.reason == reason), "{candidates:?}");
        }
    }
}
