//! Metrics of nodes and leases.

use strum::IntoEnumIterator;

use crate::{LeaseKind, Leases, Topic};

payferry_runtime::metrics! {
    Gauge LEASES = "payferry_node_leases", "Leases that this node holds, by kind.",
        exported by "kind" in LeaseKind::iter().map(<&str>::from);
    Gauge NODES = "payferry_nodes", "Nodes that share the database and are not gone, this one included.", exported;
    Gauge(Seconds) HEARTBEAT_AGE = "payferry_node_heartbeat_age_seconds",
        "Time since this node's last heartbeat reached the database; 0 for a service that runs alone.", exported;
    Gauge(Seconds) CLOCK_OFFSET = "payferry_node_clock_offset_seconds",
        "Clock of this machine minus the clock of the database server, in seconds.", exported;
    Counter TAKEOVERS = "payferry_lease_takeovers_total",
        "Leases that this node got, by cause: claimed (free, or of a node that is gone) or handed over by another node.",
        exported by "cause" in ["claimed", "handed_over"];
    Counter NUDGES = "payferry_nudges_total", "Nudges that this node sent to other nodes, by topic.",
        exported by "topic" in Topic::iter().map(<&str>::from);
}

/// Sets the gauge of held leases.
pub(crate) fn show_leases(leases: &Leases) {
    for kind in LeaseKind::iter() {
        LEASES.set_count(&[("kind", kind.into())], leases.count(kind) as u64);
    }
}
