//! Metrics of payments and of quarantine: every name with its unit and meaning. Labels are classes, statuses and chains,
//! all of them closed sets; never an id.

use metrics::{Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use payferry_domain::payment::Status;
use payferry_runtime::observe::{ActorKind, Cause};

use super::tally::Tallied;

const QUARANTINED: &str = "payferry_payments_quarantined_total";
const QUARANTINED_NOW: &str = "payferry_payments_quarantined";
const OUTBOUND_QUARANTINED: &str = "payferry_sendings_quarantined_total";
const OUTBOUND_QUARANTINED_NOW: &str = "payferry_sendings_quarantined";
const PAYMENTS: &str = "payferry_payments";
const PAYMENTS_LIVE: &str = "payferry_payments_live";
pub(super) const TRANSITION: &str = "payferry_payment_transition_seconds";

/// Registers the help texts of the metrics, and exports the counters as 0: an alert on an increase does not fire if a
/// counter first appears at 1.
pub(super) fn describe() {
    describe_counter!(QUARANTINED, "Payments quarantined after too many failures, by class of the last failure.");
    describe_gauge!(QUARANTINED_NOW, "Quarantined payments that no operator has released yet.");
    describe_counter!(
        OUTBOUND_QUARANTINED,
        "Payouts and withdrawals quarantined after too many failures, by class of the last failure."
    );
    describe_gauge!(OUTBOUND_QUARANTINED_NOW, "Quarantined payouts and withdrawals that no operator has released yet.");
    describe_gauge!(PAYMENTS, "Payments, by status and chain.");
    describe_gauge!(PAYMENTS_LIVE, "Live payments, which still have an actor, by status and chain.");
    describe_histogram!(
        TRANSITION,
        Unit::Seconds,
        "Time from one status of a payment to the next, labelled with both, by the service's clock."
    );
    for kind in [ActorKind::Payment, ActorKind::Sending] {
        for cause in Cause::ALL {
            counter!(quarantined_name(kind), "cause" => cause.as_str()).increment(0);
        }
    }
}

fn quarantined_name(kind: ActorKind) -> &'static str {
    if kind == ActorKind::Sending { OUTBOUND_QUARANTINED } else { QUARANTINED }
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
    gauge!(OUTBOUND_QUARANTINED_NOW).set(sendings as f64);
}

pub(super) fn transition_seconds(from: Status, to: Status) -> Histogram {
    histogram!(TRANSITION, "from" => from.as_str(), "to" => to.as_str())
}
