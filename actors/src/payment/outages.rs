//! Recent outages of chains. Payments that start later learn of them here.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_domain::payment::{Outage, Payment};

/// Outages of a chain that are kept for payments that start later.
const OUTAGES_KEPT_MAX: usize = 64;

/// The newest outages of each chain.
#[derive(Default)]
pub(crate) struct Outages(Mutex<HashMap<Chain, VecDeque<Outage>>>);

impl Outages {
    /// Keeps an outage, in place of what was known of it.
    pub(crate) fn keep(&self, chain: Chain, outage: Outage) {
        let mut outages = self.0.lock();
        let kept = outages.entry(chain).or_default();
        kept.retain(|known| known.id != outage.id);
        kept.push_back(outage);
        if kept.len() > OUTAGES_KEPT_MAX {
            kept.pop_front();
        }
    }

    /// Outages that may have moved the deadline of a payment and that it does not know.
    pub(crate) fn unknown_to(&self, payment: &Payment) -> Vec<Outage> {
        let concerns = |outage: &Outage| {
            outage.to > payment.terms.created_at
                && outage.from < payment.deadline()
                && !payment.outages.contains(outage)
        };
        let outages = self.0.lock();
        outages.get(&payment.terms.chain).into_iter().flatten().copied().filter(concerns).collect()
    }
}
