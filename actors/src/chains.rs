//! The chains that run here: what is configured of each, how it stands, and its settler.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use payferry_domain::payment::{ObservedTransfer, TransferKey};
use payferry_domain::{Address, Chain, Finality, PaymentId};
use payferry_entities::{Database, transfers};

use crate::chain::{self, ChainSpec, ChainView, LoadError, Selector, Watchlist};

/// Wakes a settler.
pub(crate) type Nudge = Box<dyn Fn() + Send + Sync>;

/// The running chains, shared by payments, HTTP and the supervisors.
pub struct Chains {
    watchlist: Watchlist,
    selector: Selector,
    settlers: RwLock<BTreeMap<Chain, Nudge>>,
}

impl Chains {
    /// Over the chains that passed their checks.
    pub(crate) fn new(specs: Vec<ChainSpec>) -> Self {
        let watchlist = Watchlist::new();
        let selector = Selector::new(specs, watchlist.clone());
        Self { watchlist, selector, settlers: RwLock::default() }
    }

    /// What is configured of a chain; `None` if it does not run here.
    pub fn spec(&self, chain: Chain) -> Option<&ChainSpec> {
        self.selector.spec(chain)
    }

    /// How a chain stood when it was last looked at.
    pub fn view(&self, chain: Chain) -> Option<ChainView> {
        self.watchlist.view(chain)
    }

    /// Chooses a chain for `best`.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    pub(crate) fn watchlist(&self) -> &Watchlist {
        &self.watchlist
    }

    pub(crate) fn set_settler(&self, chain: Chain, settler: Nudge) {
        self.settlers.write().insert(chain, settler);
    }

    pub(crate) fn nudge_settler(&self, chain: Chain) {
        if let Some(nudge) = self.settlers.read().get(&chain) {
            nudge();
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

    /// What rows about transfers state, as facts for their payments, oldest blocks first.
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
                facts.extend(chain::facts(database, spec, &of_chain).await?.into_iter().map(|(_, fact)| fact));
            }
        }
        Ok(facts)
    }

    pub(crate) fn unwatch(&self, wallet: Address) {
        self.watchlist.unwatch(wallet);
    }
}

impl std::fmt::Debug for Chains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chains").field("selector", &self.selector).finish_non_exhaustive()
    }
}
