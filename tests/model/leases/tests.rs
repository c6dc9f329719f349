//! Scenarios. Each is checked with the protections of the design, and again without single ones: then the checker must
//! find a counterexample.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::cluster::{Cluster, ClusterBudget, Protections};
use super::properties::{HAND_OVER, ONE_HOLDER, ORDER, READS_ALL, REFUSED, TAKEOVER, UNMOVED};
use super::timing::{CLAIMED, IN_TIME, LOCKED, LeaseTimes, MUST_MOVE, OUTLASTED, Timing, TimingBudget};

/// Two nodes; one is killed and starts again, and the standby is promoted.
fn two_nodes() -> Cluster {
    Cluster {
        machines: 2,
        budget: ClusterBudget {
            assignments: 2,
            expiries: 2,
            writes: 3,
            kills: 1,
            restarts: 1,
            failovers: 1,
            ..ClusterBudget::default()
        },
        protections: Protections::DESIGN,
        reaches: vec![TAKEOVER, HAND_OVER, UNMOVED],
    }
}

/// Three nodes; one is killed, and the standby is promoted.
fn three_nodes() -> Cluster {
    let budget = ClusterBudget { writes: 2, restarts: 0, ..two_nodes().budget };
    Cluster { machines: 3, budget, ..two_nodes() }
}

/// Two nodes, of which one freezes.
fn frozen_node() -> Cluster {
    let budget = ClusterBudget { freezes: 1, kills: 0, restarts: 1, failovers: 0, ..two_nodes().budget };
    Cluster { budget, reaches: vec![HAND_OVER, REFUSED], ..two_nodes() }
}

/// The primary recovers from a crash and shows an assignment, which the promotion of the standby then loses.
fn lost_assignment() -> Cluster {
    let budget = ClusterBudget { writes: 2, kills: 0, restarts: 0, recoveries: 1, ..two_nodes().budget };
    Cluster { budget, reaches: vec![HAND_OVER, UNMOVED], ..two_nodes() }
}

/// Nodes with the times of the design.
fn timing(nodes: usize, budget: TimingBudget) -> Timing {
    let times = LeaseTimes {
        ttl_secs: 6,
        idle_in_transaction_secs: 4,
        missed_heartbeats_max: 0,
        requires_steady_heartbeats: true,
    };
    Timing { nodes, times, budget, reaches: Vec::new() }
}

fn holds<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let begun = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {states} states, {steps} steps, depth {}, {:?}", checker.max_depth(), begun.elapsed());
    checker.assert_properties();
}

/// The checker finds a counterexample of the property.
fn finds<M>(property: &'static str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let enough = HasDiscoveries::AllOf([property].into_iter().collect());
    let checker = model.checker().finish_when(enough).spawn_bfs().join();
    let steps = checker.discovery(property).expect("a counterexample").into_actions();
    println!("{property}: after {} states\n{steps:#?}", checker.unique_state_count());
}

/// The checker finds a counterexample without a protection.
fn finds_without(property: &'static str, mut model: Cluster, remove: impl FnOnce(&mut Protections)) {
    remove(&mut model.protections);
    finds(property, model);
}

/// The checker finds a counterexample with other times.
fn finds_with(property: &'static str, mut model: Timing, change: impl FnOnce(&mut LeaseTimes)) {
    change(&mut model.times);
    finds(property, model);
}

#[test]
fn leases_of_two_nodes_hold() {
    holds("leases, two nodes", two_nodes());
}

#[test]
fn leases_of_three_nodes_hold() {
    holds("leases, three nodes", three_nodes());
}

#[test]
fn leases_of_a_frozen_node_hold() {
    holds("leases, a frozen node", frozen_node());
}

/// With `changed_at`, a node may even act on a claim that is not acknowledged.
#[test]
fn lost_assignment_holds_with_changed_at() {
    let protections = Protections { waits_for_acknowledgement: false, ..Protections::DESIGN };
    holds("leases, a lost assignment", Cluster { protections, ..lost_assignment() });
}

/// The longer form: more assignments and failovers, restarts on three machines, and three nodes that lose an assignment.
#[test]
#[ignore = "long"]
fn leases_of_more_events_hold() {
    let budget = ClusterBudget { assignments: 3, failovers: 2, kills: 0, restarts: 1, ..two_nodes().budget };
    let reaches = vec![HAND_OVER, UNMOVED];
    holds("leases, two nodes, two failovers", Cluster { budget, reaches: reaches.clone(), ..two_nodes() });
    let budget = ClusterBudget { restarts: 1, ..three_nodes().budget };
    holds("leases, three nodes, a restart", Cluster { budget, ..three_nodes() });
    let protections = Protections::DESIGN;
    let lost = Cluster { machines: 3, protections, ..lost_assignment() };
    holds("leases, three nodes, a lost assignment", lost);
}

/// The fence reads the row only. The holder freezes before its commit, another node claims, and both write.
#[test]
fn fence_without_a_lock_is_found() {
    finds_without(ORDER, two_nodes(), |protections| protections.fence_locks = false);
}

#[test]
fn claim_of_a_locked_row_is_found() {
    finds_without(ORDER, two_nodes(), |protections| protections.claim_skips_locked = false);
}

/// A node gains the lease again, and a write of its former period is still queued.
#[test]
fn fence_without_the_epoch_is_found() {
    finds_without(ORDER, two_nodes(), |protections| protections.fence_compares_epoch = false);
}

/// A failover loses an assignment that its owner has read. The epoch is then given to another node, too. Neither the owner nor
/// the time of the change is compared.
#[test]
fn fence_without_the_owner_is_found() {
    let three = Cluster { machines: 3, ..lost_assignment() };
    finds_without(ORDER, three, |protections| {
        (protections.fence_compares_owner, protections.compares_changed_at) = (false, false);
    });
}

/// A failover loses the claim, the earlier owner writes, and the same epoch is given to the same node again. A write
/// that the node has decided after its first claim passes the fence, if it does not compare the time of the change.
#[test]
fn claim_that_is_used_before_its_acknowledgement_is_found() {
    finds_without(READS_ALL, two_nodes(), |protections| {
        (protections.waits_for_acknowledgement, protections.compares_changed_at) = (false, false);
    });
}

/// The same, if the node waits for the acknowledgement: a primary that recovers from a crash shows an assignment that
/// its standby has not received. Owner and epoch do not suffice then.
#[test]
fn epoch_that_one_node_is_given_twice_is_found() {
    let protections = Protections { compares_changed_at: false, ..Protections::DESIGN };
    finds(READS_ALL, Cluster { protections, ..lost_assignment() });
}

/// The owner and the epoch still keep the order of writes, also if a node acts on a claim that is not acknowledged.
#[test]
fn order_holds_if_an_assignment_is_lost() {
    let protections =
        Protections { compares_changed_at: false, waits_for_acknowledgement: false, ..Protections::DESIGN };
    let model = Cluster { protections, ..lost_assignment() };
    let both = HasDiscoveries::AllOf([ORDER, ONE_HOLDER].into_iter().collect());
    let checker = model.checker().finish_when(both).spawn_bfs().join();
    println!("leases, the order after a lost assignment: {} states", checker.unique_state_count());
    assert!(checker.is_done());
    checker.assert_no_discovery(ORDER);
    checker.assert_no_discovery(ONE_HOLDER);
}

#[test]
fn leases_move_only_if_they_must() {
    let budget = TimingBudget { freezes: 1, kills: 1, outages: 1 };
    let reaches = vec![CLAIMED, OUTLASTED, LOCKED];
    holds("times of leases, two nodes", Timing { reaches, ..timing(2, budget) });
    let budget = TimingBudget { outages: 2, ..TimingBudget::default() };
    holds("times of leases, two outages", Timing { reaches: vec![OUTLASTED], ..timing(2, budget) });
}

#[test]
fn leases_of_three_nodes_move_only_if_they_must() {
    let budget = TimingBudget { kills: 1, outages: 1, ..TimingBudget::default() };
    holds("times of leases, three nodes", Timing { reaches: vec![CLAIMED, OUTLASTED], ..timing(3, budget) });
}

#[test]
#[ignore = "long"]
fn leases_of_three_nodes_with_a_freeze_move_only_if_they_must() {
    let budget = TimingBudget { freezes: 1, outages: 1, ..TimingBudget::default() };
    let reaches = vec![CLAIMED, OUTLASTED, LOCKED];
    holds("times of leases, three nodes, a freeze", Timing { reaches, ..timing(3, budget) });
}

/// The first node to reach the database after an outage expires the others.
#[test]
fn expiry_without_steady_heartbeats_is_found() {
    let outage = TimingBudget { outages: 1, ..TimingBudget::default() };
    finds_with(MUST_MOVE, timing(2, outage), |times| times.requires_steady_heartbeats = false);
}

/// In two short outages, one node misses single heartbeats, and another node misses all of its heartbeats.
#[test]
fn steady_heartbeats_of_which_one_was_missed_are_found() {
    let outages = TimingBudget { outages: 2, ..TimingBudget::default() };
    finds_with(MUST_MOVE, timing(2, outages), |times| times.missed_heartbeats_max = 1);
}

#[test]
fn idle_transaction_that_outlasts_the_ttl_is_found() {
    let freeze = TimingBudget { freezes: 1, ..TimingBudget::default() };
    finds_with(IN_TIME, timing(2, freeze), |times| times.idle_in_transaction_secs = 10);
}
