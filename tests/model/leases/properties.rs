//! Properties that hold in every state, and situations that must occur.

use stateright::Property;

use super::cluster::{Cluster, ClusterSituation, ClusterState, ProcessStatus, Thaw};
use super::database::LeasedWrite;

/// Name of the first property.
pub const ORDER: &str = "no write of an older holder commits after one of a newer holder";
/// Name of the second property.
pub const ONE_HOLDER: &str = "at most one holder can commit at any time";
/// Name of the third property.
pub const READS_ALL: &str = "a holder has read every write of earlier holders";

/// All properties.
pub fn all(model: &Cluster) -> Vec<Property<Cluster>> {
    let mut properties = vec![
        Property::always(ORDER, |_, state: &ClusterState| writes_are_ordered(&state.database.primary.writes)),
        Property::always(ONE_HOLDER, |_, state: &ClusterState| can_only_the_owner_commit(state)),
        Property::always(READS_ALL, |_, state: &ClusterState| earlier_writes_were_read(&state.database.primary.writes)),
    ];
    properties.extend(model.reaches.iter().map(|&(name, condition)| Property::sometimes(name, condition)));
    properties
}

/// Epochs never decrease, and no epoch has two owners.
fn writes_are_ordered(writes: &[LeasedWrite]) -> bool {
    writes.windows(2).all(|pair| {
        let (earlier, later) = (pair[0].lease.tenure, pair[1].lease.tenure);
        earlier.epoch < later.epoch || earlier == later
    })
}

/// A transaction that passed the fence can commit. Each belongs to the owner of the row, which is a single one.
fn can_only_the_owner_commit(state: &ClusterState) -> bool {
    let mut txns = state.database.txns.values();
    txns.all(|txn| txn.lease.tenure == state.database.primary.lease)
}

/// Each write was decided by a holder that had read all earlier writes of other tenures.
fn earlier_writes_were_read(writes: &[LeasedWrite]) -> bool {
    writes.iter().enumerate().all(|(index, write)| {
        let others = writes[..index].iter().filter(|earlier| earlier.lease.tenure != write.lease.tenure);
        others.map(|earlier| earlier.position).all(|position| position <= write.lease.read)
    })
}

/// Another node writes after the holder was killed.
pub const TAKEOVER: ClusterSituation = ("a takeover after a kill", |_, state| {
    changes_of_owner(state).any(|(earlier, _)| {
        let process = state.processes[usize::from(earlier.lease.tenure.owner.machine)];
        process.status == ProcessStatus::Killed && state.database.primary.gone.contains(&earlier.lease.tenure.owner)
    })
});

/// Another node writes, and the earlier owner is not expired: a lost expiry was followed by no claim.
pub const HAND_OVER: ClusterSituation = ("a hand-over", |_, state| {
    changes_of_owner(state).any(|(earlier, _)| !state.database.primary.gone.contains(&earlier.lease.tenure.owner))
});

/// The fence refuses a write of a thawed node.
pub const REFUSED: ClusterSituation = ("a thawed node's write is refused", |_, state| {
    state.processes.iter().any(|process| process.thaw == Thaw::Refused)
});

/// The same holder writes before and after a failover.
pub const UNMOVED: ClusterSituation = ("a failover moves no lease", |_, state| {
    let mut pairs = state.database.primary.writes.windows(2);
    pairs.any(|pair| pair[0].lease.tenure == pair[1].lease.tenure && pair[0].failovers < pair[1].failovers)
});

fn changes_of_owner(state: &ClusterState) -> impl Iterator<Item = (&LeasedWrite, &LeasedWrite)> {
    let pairs = state.database.primary.writes.windows(2).map(|pair| (&pair[0], &pair[1]));
    pairs.filter(|(earlier, later)| earlier.lease.tenure.owner != later.lease.tenure.owner)
}
