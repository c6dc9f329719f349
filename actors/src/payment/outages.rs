//! Recent outages of chains. Payments that start later learn of them here.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use payferry_domain::payment::{Outage, Payment};
use payferry_domain::{Chain, Timestamp};

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

    /// True if an outage may have moved the deadline of a payment on the chain that knows of none.
    pub(crate) fn concern(&self, chain: Chain, created_at: Timestamp, deadline: Timestamp) -> bool {
        let outages = self.0.lock();
        outages.get(&chain).into_iter().flatten().any(|outage| concerns(outage, created_at, deadline))
    }

    /// Outages that may have moved the deadline of a payment and that it does not know.
    pub(crate) fn unknown_to(&self, payment: &Payment) -> Vec<Outage> {
        let is_unknown = |outage: &Outage| {
            concerns(outage, payment.terms.created_at, payment.deadline()) && !payment.outages.contains(outage)
        };
        let outages = self.0.lock();
        outages.get(&payment.terms.chain).into_iter().flatten().copied().filter(is_unknown).collect()
    }
}

fn concerns(outage: &Outage, created_at: Timestamp, deadline: Timestamp) -> bool {
    outage.to > created_at && outage.from < deadline
}
