//! The live aggregates of one supervisor: their actors, those that only wait, and the deadlines of all.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use payferry_domain::{Chain, Timestamp};
use payferry_runtime::observe::Mailbox;
use ractor::ActorStatus;

use super::Aggregate;
use super::actor::Message;

/// The live aggregates of a supervisor, by id, so that they can be read in pages.
pub(super) struct Live<A: Aggregate> {
    pub(super) actors: BTreeMap<A::Id, Mailbox<Message<A>>>,
    /// Notes of those that only wait, and have no actor.
    pub(super) waiting: BTreeMap<A::Id, u64>,
    /// Aggregates to notify when their chain has been read up to this time.
    deadlines: HashMap<Chain, BTreeSet<(Timestamp, A::Id)>>,
    /// While the supervisor reads its live aggregates: those whose actors have left since.
    left: Option<HashSet<A::Id>>,
}

impl<A: Aggregate> Default for Live<A> {
    fn default() -> Self {
        Self { actors: BTreeMap::new(), waiting: BTreeMap::new(), deadlines: HashMap::new(), left: None }
    }
}

impl<A: Aggregate> Live<A> {
    /// Number of live aggregates.
    pub(super) fn len(&self) -> usize {
        self.actors.len() + self.waiting.len()
    }

    /// The actor of an aggregate, unless it is about to end.
    pub(super) fn actor(&self, id: A::Id) -> Option<Mailbox<Message<A>>> {
        self.actors.get(&id).filter(|actor| actor.get_status() < ActorStatus::Draining).cloned()
    }

    /// Removes the actor of an aggregate.
    pub(super) fn remove(&mut self, id: A::Id) {
        self.actors.remove(&id);
        if let Some(left) = &mut self.left {
            left.insert(id);
        }
    }

    /// Adds a deadline. The same one counts once.
    pub(super) fn await_deadline(&mut self, id: A::Id, chain: Chain, at: Timestamp) {
        self.deadlines.entry(chain).or_default().insert((at, id));
    }

    /// Takes the aggregates whose deadlines a chain has passed at this time.
    pub(super) fn take_passed(&mut self, chain: Chain, block_time: Timestamp) -> Vec<A::Id> {
        let Some(deadlines) = self.deadlines.get_mut(&chain) else { return Vec::new() };
        let passed = std::iter::from_fn(|| {
            let first = deadlines.first().filter(|(at, _)| *at <= block_time).copied()?;
            deadlines.remove(&first);
            Some(first.1)
        });
        passed.collect()
    }

    /// The aggregates with a deadline on a chain, in the order of their deadlines.
    pub(super) fn with_deadline(&self, chain: Chain) -> Vec<A::Id> {
        self.deadlines.get(&chain).into_iter().flatten().map(|(_, id)| *id).collect()
    }

    /// Forgets the deadlines of other aggregates.
    pub(super) fn retain_deadlines(&mut self, holds: impl Fn(&A::Id) -> bool) {
        self.deadlines.values_mut().for_each(|waiting| waiting.retain(|(_, id)| holds(id)));
    }

    /// The supervisor begins to read its live aggregates, or has read them.
    pub(super) fn set_loading(&mut self, is_loading: bool) {
        self.left = is_loading.then(HashSet::new);
    }

    /// True if the aggregate has an actor, or had one since the supervisor began to read: what was read may be older.
    pub(super) fn is_known(&self, id: A::Id) -> bool {
        self.actor(id).is_some() || self.left.as_ref().is_some_and(|left| left.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::PaymentId;
    use payferry_domain::payment::Payment;

    use super::*;

    #[test]
    fn an_aggregate_that_ends_while_its_supervisor_reads_is_known() {
        let mut live = Live::<Payment>::default();
        let [before, meanwhile] = [PaymentId::generate(), PaymentId::generate()];
        live.remove(before);
        live.set_loading(true);
        live.remove(meanwhile);
        assert!(!live.is_known(before) && live.is_known(meanwhile));
        live.set_loading(false);
        assert!(!live.is_known(meanwhile));
    }

    #[test]
    fn each_deadline_passes_once_and_on_its_own_chain() {
        let mut live = Live::<Payment>::default();
        let [one, other, lost] = [(); 3].map(|()| PaymentId::generate());
        for (id, chain, at) in [(other, Chain::Base, 2_000), (one, Chain::Base, 1_000), (one, Chain::Base, 1_000)] {
            live.await_deadline(id, chain, Timestamp(at));
        }
        live.await_deadline(lost, Chain::Polygon, Timestamp(1_000));
        assert_eq!(live.with_deadline(Chain::Base), [one, other]);
        assert_eq!(live.take_passed(Chain::Base, Timestamp(999)), []);
        assert_eq!(live.take_passed(Chain::Base, Timestamp(1_000)), [one]);
        assert_eq!(live.take_passed(Chain::Base, Timestamp(2_000)), [other]);
        live.retain_deadlines(|id| *id != lost);
        assert_eq!(live.take_passed(Chain::Polygon, Timestamp(1_000)), []);
    }
}
