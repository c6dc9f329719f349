//! What was given up: payments, payouts and withdrawals that failed too often and are not run until somebody releases them.
//!
//! A defect that all of them share gives all of them up. So they are counted as they come and go, and read a page at a time:
//! nothing here walks over them or copies them all.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use payferry_domain::Timestamp;
use serde::Serialize;

use super::{ActorKind, Ferried};

/// Why something is not run any more until an operator looks at it.
#[derive(Debug, Clone, Serialize)]
pub struct Quarantine {
    /// Since when, by the wall clock.
    pub since: Timestamp,
    /// The last failure.
    pub reason: String,
}

/// One that is given up.
#[derive(Debug, Clone, Serialize)]
pub struct GivenUp {
    /// Which.
    pub id: Ferried,
    /// Since when, and why.
    #[serde(flatten)]
    pub quarantine: Quarantine,
}

/// All that are given up, by id and by age.
#[derive(Debug, Default)]
pub(super) struct Quarantined {
    by_id: HashMap<Ferried, Quarantine>,
    by_age: BTreeSet<(Timestamp, Ferried)>,
    payments: usize,
}

impl Quarantined {
    pub(super) fn insert(&mut self, of: Ferried, quarantine: Quarantine) {
        self.remove(of);
        self.payments += usize::from(of.kind() == ActorKind::Payment);
        self.by_age.insert((quarantine.since, of));
        self.by_id.insert(of, quarantine);
    }

    /// Answers whether it was given up.
    pub(super) fn remove(&mut self, of: Ferried) -> bool {
        let Some(quarantine) = self.by_id.remove(&of) else { return false };
        self.payments -= usize::from(of.kind() == ActorKind::Payment);
        self.by_age.remove(&(quarantine.since, of))
    }

    pub(super) fn contains(&self, of: Ferried) -> bool {
        self.by_id.contains_key(&of)
    }

    pub(super) fn get(&self, of: Ferried) -> Option<&Quarantine> {
        self.by_id.get(&of)
    }

    /// Payments.
    pub(super) const fn payments_len(&self) -> usize {
        self.payments
    }

    /// Payouts and withdrawals.
    pub(super) fn sendings_len(&self) -> usize {
        self.by_id.len() - self.payments
    }

    /// At most so many, the longest given up first, behind `after` if that is given: it may be there no more.
    pub(super) fn page(&self, after: Option<(Timestamp, Ferried)>, limit: usize) -> Vec<GivenUp> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.by_age.range((from, Bound::Unbounded)).take(limit);
        page.filter_map(|(_, id)| Some(GivenUp { id: *id, quarantine: self.by_id.get(id)?.clone() })).collect()
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::sending::SendingId;
    use payferry_domain::{PaymentId, PayoutId};

    use super::*;

    fn at(ms: i64) -> Quarantine {
        Quarantine { since: Timestamp(ms), reason: format!("at {ms}") }
    }

    #[test]
    fn pages_go_on_where_the_one_before_ended_whatever_was_released_meanwhile() {
        let mut all = Quarantined::default();
        let payments: Vec<Ferried> = (0..5).map(|_| PaymentId::generate().into()).collect();
        let payout = Ferried::Sending(SendingId::Payout(PayoutId::generate()));
        // The last made was given up first.
        for (ms, of) in (0..).zip(payments.iter().rev()) {
            all.insert(*of, at(ms));
        }
        all.insert(payout, at(2));
        assert_eq!((all.payments_len(), all.sendings_len()), (5, 1));

        let first = all.page(None, 3);
        let ids: Vec<Ferried> = first.iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[4], payments[3], payments[2]], "a payment stands before a payout of the same moment");
        let last = first.last().map(|one| (one.quarantine.since, one.id));
        assert!(all.remove(payments[2]) && !all.remove(payments[2]));
        let rest: Vec<Ferried> = all.page(last, 9).iter().map(|one| one.id).collect();
        assert_eq!(rest, [payout, payments[1], payments[0]]);

        // Given up once more, it is there once, and last.
        all.insert(payments[4], at(9));
        assert_eq!((all.payments_len(), all.sendings_len()), (4, 1));
        let ids: Vec<Ferried> = all.page(None, 9).iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[3], payout, payments[1], payments[0], payments[4]]);
        assert_eq!(all.get(payments[4]).map(|one| one.reason.as_str()), Some("at 9"));
        assert!(all.contains(payout) && !all.contains(payments[2]));
    }
}
