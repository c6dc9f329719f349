//! Metrics of actors and payments: every name with its unit and meaning. Labels are kinds, classes, statuses and
//! chains, all of them closed sets; never an id.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use payferry_domain::payment::Status;

use super::ActorKind;
use super::log::Cause;
use super::tally::Tallied;

const ACTORS_LIVE: &str = "payferry_actors_live";
const MAILBOX_MESSAGES: &str = "payferry_actor_mailbox_messages";
pub(super) const MAILBOX_WAIT: &str = "payferry_actor_mailbox_wait_seconds";
pub(super) const HANDLING: &str = "payferry_actor_handling_seconds";
const MESSAGES: &str = "payferry_actor_messages_total";
const RESTARTS: &str = "payferry_actor_restarts_total";
const QUARANTINED: &str = "payferry_payments_quarantined_total";
const QUARANTINED_NOW: &str = "payferry_payments_quarantined";
const SENDINGS_QUARANTINED: &str = "payferry_sendings_quarantined_total";
const SENDINGS_QUARANTINED_NOW: &str = "payferry_sendings_quarantined";
const PAYMENTS: &str = "payferry_payments";
const PAYMENTS_LIVE: &str = "payferry_payments_live";
pub(super) const TRANSITION: &str = "payferry_payment_transition_seconds";

/// Registers the help texts.
pub(super) fn describe() {
    describe_gauge!(ACTORS_LIVE, "Running actors, by kind.");
    describe_gauge!(
        MAILBOX_MESSAGES,
        "Messages waiting in mailboxes, by kind of actor; for the journal: in its queues."
    );
    describe_histogram!(MAILBOX_WAIT, Unit::Seconds, "Time a message waited before it was received, by kind of actor.");
    describe_histogram!(
        HANDLING,
        Unit::Seconds,
        "Handling time of a message, including waits for other actors, by kind of actor; for the journal: of a \
         group of writes."
    );
    describe_counter!(MESSAGES, "Messages received, by kind of actor; for the journal: writes.");
    describe_counter!(RESTARTS, "Actors restarted after a failure, by kind and class of failure.");
    describe_counter!(QUARANTINED, "Payments quarantined after too many failures, by class of the last failure.");
    describe_gauge!(QUARANTINED_NOW, "Quarantined payments that no operator has released yet.");
    describe_counter!(
        SENDINGS_QUARANTINED,
        "Payouts and withdrawals quarantined after too many failures, by class of the last failure."
    );
    describe_gauge!(SENDINGS_QUARANTINED_NOW, "Quarantined payouts and withdrawals that no operator has released yet.");
    describe_gauge!(PAYMENTS, "Payments, by status and chain.");
    describe_gauge!(PAYMENTS_LIVE, "Live payments, which still have an actor, by status and chain.");
    describe_histogram!(
        TRANSITION,
        Unit::Seconds,
        "Time from one status of a payment to the next, labelled with both, by the service's clock."
    );
}

/// Handles of one kind, looked up once.
pub(super) struct KindMetrics {
    pub(super) wait: Histogram,
    pub(super) handling: Histogram,
    live: Gauge,
    mailbox: Gauge,
    messages: Counter,
    messages_shown: AtomicU64,
}

impl KindMetrics {
    pub(super) fn new(kind: ActorKind) -> Self {
        show_failures(kind);
        let kind = kind.as_str();
        Self {
            wait: histogram!(MAILBOX_WAIT, "kind" => kind),
            handling: histogram!(HANDLING, "kind" => kind),
            live: gauge!(ACTORS_LIVE, "kind" => kind),
            mailbox: gauge!(MAILBOX_MESSAGES, "kind" => kind),
            messages: counter!(MESSAGES, "kind" => kind),
            messages_shown: AtomicU64::new(0),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn refresh(&self, live: usize, mailbox: usize, messages: u64) {
        self.live.set(live as f64);
        self.mailbox.set(mailbox as f64);
        let shown = self.messages_shown.swap(messages, Ordering::Relaxed);
        self.messages.increment(messages.saturating_sub(shown));
    }
}

/// Exports every cause at 0: an alert on an increase does not fire if a counter first appears at 1.
fn show_failures(kind: ActorKind) {
    for cause in Cause::ALL {
        counter!(RESTARTS, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(0);
        if kind.is_one_of_many() {
            counter!(quarantined_name(kind), "cause" => cause.as_str()).increment(0);
        }
    }
}

fn quarantined_name(kind: ActorKind) -> &'static str {
    if kind == ActorKind::Sending { SENDINGS_QUARANTINED } else { QUARANTINED }
}

pub(super) fn restarted(kind: ActorKind, cause: Cause) {
    counter!(RESTARTS, "kind" => kind.as_str(), "cause" => cause.as_str()).increment(1);
}

pub(super) fn quarantined(kind: ActorKind, cause: Cause) {
    counter!(quarantined_name(kind), "cause" => cause.as_str()).increment(1);
}

/// Exports payments by status and chain.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn refresh_payments(tally: &[Tallied]) {
    for Tallied { status, chain, count, live } in tally {
        gauge!(PAYMENTS, "status" => status.as_str(), "chain" => chain.as_str()).set(*count as f64);
        gauge!(PAYMENTS_LIVE, "status" => status.as_str(), "chain" => chain.as_str()).set(*live as f64);
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn refresh_quarantined(payments: usize, sendings: usize) {
    gauge!(QUARANTINED_NOW).set(payments as f64);
    gauge!(SENDINGS_QUARANTINED_NOW).set(sendings as f64);
}

pub(super) fn transition_seconds(from: Status, to: Status) -> Histogram {
    histogram!(TRANSITION, "from" => from.as_str(), "to" => to.as_str())
}
