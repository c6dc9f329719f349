//! Quarantined payments, payouts and withdrawals: they failed too often, or would have violated an invariant, and do not
//! run until an operator releases them.
//!
//! A defect common to all of them quarantines all of them. So they are counted incrementally and read in pages: no
//! operation iterates over or copies all of them.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use payferry_domain::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::{ActorKind, ActorSubject};

/// Reason for a quarantine, which lasts until an operator releases the actor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Quarantine {
    /// Start, by the wall clock.
    #[schema(value_type = i64)]
    pub since: Timestamp,
    /// The last failure.
    pub reason: String,
}

/// A quarantined subject.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuarantinedSubject {
    /// Id of the payment, payout or withdrawal.
    #[schema(value_type = String)]
    pub id: ActorSubject,
    /// Start and reason.
    #[serde(flatten)]
    pub quarantine: Quarantine,
}

/// All quarantined subjects, by id and by age.
#[derive(Debug, Default)]
pub(super) struct Quarantined {
    by_id: HashMap<ActorSubject, Quarantine>,
    by_age: BTreeSet<(Timestamp, ActorSubject)>,
    payments: usize,
}

impl Quarantined {
    pub(super) fn insert(&mut self, of: ActorSubject, quarantine: Quarantine) {
        self.remove(of);
        self.payments += usize::from(of.kind() == ActorKind::Payment);
        self.by_age.insert((quarantine.since, of));
        self.by_id.insert(of, quarantine);
    }

    /// Removes a subject; returns true if it was quarantined.
    pub(super) fn remove(&mut self, of: ActorSubject) -> bool {
        let Some(quarantine) = self.by_id.remove(&of) else { return false };
        self.payments -= usize::from(of.kind() == ActorKind::Payment);
        self.by_age.remove(&(quarantine.since, of))
    }

    pub(super) fn contains(&self, of: ActorSubject) -> bool {
        self.by_id.contains_key(&of)
    }

    pub(super) fn get(&self, of: ActorSubject) -> Option<&Quarantine> {
        self.by_id.get(&of)
    }

    /// Number of payments.
    pub(super) const fn payments_len(&self) -> usize {
        self.payments
    }

    /// Number of payouts and withdrawals.
    pub(super) fn outbound_len(&self) -> usize {
        self.by_id.len() - self.payments
    }

    /// A page, oldest quarantine first, after `after` if given, which need not be quarantined any more.
    pub(super) fn page(&self, after: Option<(Timestamp, ActorSubject)>, limit: usize) -> Vec<QuarantinedSubject> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.by_age.range((from, Bound::Unbounded)).take(limit);
        page.filter_map(|(_, id)| Some(QuarantinedSubject { id: *id, quarantine: self.by_id.get(id)?.clone() }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::outbound::OutboundId;
    use payferry_domain::{PaymentId, PayoutId};

    use super::*;

    fn at(ms: i64) -> Quarantine {
        Quarantine { since: Timestamp(ms), reason: format!("at {ms}") }
    }

    #[test]
    fn pages_continue_after_the_last_entry_despite_releases() {
        let mut all = Quarantined::default();
        let payments: Vec<ActorSubject> = (0..5).map(|_| PaymentId::generate().into()).collect();
        let payout = ActorSubject::OutboundTransfer(OutboundId::Payout(PayoutId::generate()));
        // The last one created is quarantined first.
        for (ms, of) in (0..).zip(payments.iter().rev()) {
            all.insert(*of, at(ms));
        }
        all.insert(payout, at(2));
        assert_eq!((all.payments_len(), all.outbound_len()), (5, 1));

        let first = all.page(None, 3);
        let ids: Vec<ActorSubject> = first.iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[4], payments[3], payments[2]], "a payment precedes a payout of the same time");
        let last = first.last().map(|one| (one.quarantine.since, one.id));
        assert!(all.remove(payments[2]) && !all.remove(payments[2]));
        let rest: Vec<ActorSubject> = all.page(last, 9).iter().map(|one| one.id).collect();
        assert_eq!(rest, [payout, payments[1], payments[0]]);

        // Quarantined again, it appears once, at the end.
        all.insert(payments[4], at(9));
        assert_eq!((all.payments_len(), all.outbound_len()), (4, 1));
        let ids: Vec<ActorSubject> = all.page(None, 9).iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[3], payout, payments[1], payments[0], payments[4]]);
        assert_eq!(all.get(payments[4]).map(|one| one.reason.as_str()), Some("at 9"));
        assert!(all.contains(payout) && !all.contains(payments[2]));
    }
}
