//! The configured chains: configuration, state and settler of each.

use std::collections::BTreeMap;

use payferry_domain::payment::{ObservedTransfer, TransferKey};
use payferry_domain::{Chain, Finality, PaymentId, Timestamp};
use payferry_entities::{Database, transfers};
use payferry_evm::ChainSpec;
use payferry_evm::wallet::Vaults;
use payferry_journal::chain::rows::{self, LoadError};

use crate::chain::{self, ChainView, Selector, SettlerHandle, Watchlist};

/// Configured chains, shared by payments, HTTP and the supervisors.
#[derive(Debug)]
pub struct Chains {
    watchlist: Watchlist,
    selector: Selector,
    settlers: BTreeMap<Chain, SettlerHandle>,
    vaults: BTreeMap<Chain, Vaults>,
}

impl Chains {
    /// Creates the chains that passed their checks.
    pub(crate) fn new(specs: Vec<ChainSpec>) -> Self {
        let watchlist = Watchlist::new();
        let settlers = specs.iter().map(|spec| (spec.chain, SettlerHandle::new())).collect();
        let vaults = specs.iter().map(|spec| (spec.chain, Vaults::new(spec.contract))).collect();
        let selector = Selector::new(specs, watchlist.clone());
        Self { watchlist, selector, settlers, vaults }
    }

    /// Configuration of a chain; `None` if it is not configured.
    pub fn spec(&self, chain: Chain) -> Option<&ChainSpec> {
        self.selector.spec(chain)
    }

    /// Vault addresses of a chain; `None` if it is not configured.
    pub(crate) fn vaults(&self, chain: Chain) -> Option<Vaults> {
        self.vaults.get(&chain).copied()
    }

    /// View of a chain at its last poll.
    pub fn view(&self, chain: Chain) -> Option<ChainView> {
        self.watchlist.view(chain)
    }

    /// Number of watched wallets: of live payments, and of payments that ended recently.
    pub fn wallets_watched(&self) -> usize {
        self.watchlist.wallets_len()
    }

    /// Exports the age of each chain's newest block, even while its watcher waits, and the number of watched wallets.
    pub(crate) fn refresh_metrics(&self, now: Timestamp) {
        chain::metrics::wallets_watched(self.wallets_watched());
        for view in self.running().filter_map(|spec| self.view(spec.chain)) {
            chain::metrics::head_age(&view, now);
        }
    }

    /// Reason why a chain cannot currently be read, if any; known even before the first read.
    pub fn trouble(&self, chain: Chain) -> Option<String> {
        self.watchlist.trouble(chain)
    }

    /// The configured chains, in their usual order.
    pub fn running(&self) -> impl Iterator<Item = &ChainSpec> {
        Chain::ALL.into_iter().filter_map(|chain| self.spec(chain))
    }

    /// Selector of the chain for `best`.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    pub(crate) fn watchlist(&self) -> &Watchlist {
        &self.watchlist
    }

    /// Settler of a chain: its pauses and counts. The handle stays the same when the settler is restarted.
    pub fn settler(&self, chain: Chain) -> Option<&SettlerHandle> {
        self.settlers.get(&chain)
    }

    pub(crate) fn nudge_settler(&self, chain: Chain) {
        if let Some(settler) = self.settlers.get(&chain) {
            settler.nudge();
        }
    }

    pub(crate) fn await_finality(
        &self,
        payment: PaymentId,
        key: TransferKey,
        revision: u32,
        block: u64,
        want: Finality,
    ) {
        self.watchlist.await_finality(payment, key, revision, block, want);
    }

    /// Names of the configured chains.
    pub(crate) fn names(&self) -> impl Iterator<Item = Chain> {
        Chain::ALL.into_iter().filter(|chain| self.spec(*chain).is_some())
    }

    /// Facts in rows of transfers, for their payments, oldest block first.
    pub(crate) async fn facts(
        &self,
        database: &Database,
        rows: &[transfers::Model],
    ) -> Result<Vec<ObservedTransfer>, LoadError> {
        let mut facts = Vec::with_capacity(rows.len());
        for chain in Chain::ALL {
            let Some(spec) = self.spec(chain) else { continue };
            let of_chain: Vec<_> = rows.iter().filter(|row| row.chain == chain.as_str()).cloned().collect();
            if !of_chain.is_empty() {
                facts.extend(
                    rows::facts(database, spec.chain, |address| spec.token_at(address), &of_chain)
                        .await?
                        .into_iter()
                        .map(|(_, fact)| fact),
                );
            }
        }
        Ok(facts)
    }
}
