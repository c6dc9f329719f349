//! Metrics of the runner of aggregates.

use payferry_runtime::observe::ActorKind;

payferry_runtime::metrics! {
    Counter GUESTS = "payferry_guest_commands_total",
        "Commands of clients on payments and outbound transfers whose shard another node holds, by kind.",
        exported by "kind" in [ActorKind::Payment, ActorKind::Sending].map(ActorKind::as_str);
}
