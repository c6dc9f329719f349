//! The live aggregates of one supervisor: their actors, and those that only wait.

use std::collections::{BTreeMap, HashSet};

use payferry_runtime::observe::Mailbox;
use ractor::ActorStatus;

use super::Aggregate;
use super::actor::Message;

/// The live aggregates of a supervisor, by id, so that they can be read in pages.
pub(super) struct Live<A: Aggregate> {
    pub(super) actors: BTreeMap<A::Id, Mailbox<Message<A>>>,
    /// Notes of those that only wait, and have no actor.
    pub(super) waiting: BTreeMap<A::Id, u64>,
    /// While the supervisor reads its live aggregates: those whose actors have left since.
    left: Option<HashSet<A::Id>>,
}

impl<A: Aggregate> Default for Live<A> {
    fn default() -> Self {
        Self { actors: BTreeMap::new(), waiting: BTreeMap::new(), left: None }
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
}
