//! Metrics of payments and of quarantine. Labels are classes, statuses and chains, all of them closed sets; never an id.

use metrics::Histogram;
use payferry_domain::payment::Status;
use payferry_entities::Database;
use payferry_runtime::observe::{ActorKind, Cause, Metric};

use super::quarantine::QuarantineCounts;
use super::tally::Tallied;

payferry_runtime::metrics! {
    Counter QUARANTINED = "payferry_payments_quarantined_total",
        "Payments quarantined after too many failures or a violated invariant, by class of the last failure.",
        exported by "cause" in Cause::ALL.iter().map(|cause| cause.as_str());
    Gauge QUARANTINED_NOW = "payferry_payments_quarantined",
        "Quarantined payments that no operator has released yet.";
    Counter OUTBOUND_QUARANTINED = "payferry_sendings_quarantined_total",
        "Payouts and withdrawals quarantined after too many failures or a violated invariant, by class of the last failure.",
        exported by "cause" in Cause::ALL.iter().map(|cause| cause.as_str());
    Gauge OUTBOUND_QUARANTINED_NOW = "payferry_sendings_quarantined",
        "Quarantined payouts and withdrawals that no operator has released yet.";
    Counter CUSTOMERS_QUARANTINED = "payferry_customers_quarantined_total",
        "Customers quarantined because a change would have violated an invariant.";
    Gauge CUSTOMERS_QUARANTINED_NOW = "payferry_customers_quarantined",
        "Quarantined customers that no operator has released yet.";
    Gauge PAYMENTS = "payferry_payments", "Payments, by status and chain.";
    Gauge PAYMENTS_LIVE = "payferry_payments_live",
        "Live payments, by status and chain.";
    Gauge PAYMENTS_WAITING = "payferry_payments_waiting",
        "Live payments on this node that only wait, and therefore have no actor.";
    Counter STATEMENTS = "payferry_database_statements_total",
        "Statements sent to the database, without BEGIN, COMMIT and ROLLBACK, by pool of connections.";
    Counter COMMITS = "payferry_database_commits_total",
        "Commits sent to the database: of transactions, and of single statements that write, by pool of connections.";
    Histogram(Seconds) TRANSITION = "payferry_payment_transition_seconds",
        "Time from one status of a payment to the next, labelled with both, by the service's clock.";
}

/// Counts a quarantine.
pub(super) fn quarantined(kind: ActorKind, cause: Cause) {
    let counter: Metric = if kind == ActorKind::Sending { OUTBOUND_QUARANTINED } else { QUARANTINED };
    counter.add(&[("cause", cause.as_str())], 1);
}

/// Counts the quarantine of a customer.
pub(super) fn customer_quarantined() {
    CUSTOMERS_QUARANTINED.add(&[], 1);
}

/// Exports payments by status and chain.
pub(super) fn refresh_payments(tally: &[Tallied]) {
    for Tallied { status, chain, count, live } in tally {
        let labels = [("status", status.as_str()), ("chain", chain.as_str())];
        PAYMENTS.set_count(&labels, *count);
        PAYMENTS_LIVE.set_count(&labels, *live);
    }
}

/// Exports the number of live payments that only wait.
pub(crate) fn refresh_waiting(count: usize) {
    PAYMENTS_WAITING.set_count(&[], count as u64);
}

/// Exports the statements and commits of the database.
pub(crate) fn refresh_database(database: &Database) {
    for counts in database.counts() {
        STATEMENTS.raise_to(&[("pool", counts.pool)], counts.statements);
        COMMITS.raise_to(&[("pool", counts.pool)], counts.commits);
    }
}

pub(super) fn refresh_quarantined(counts: QuarantineCounts) {
    QUARANTINED_NOW.set_count(&[], counts.payments as u64);
    OUTBOUND_QUARANTINED_NOW.set_count(&[], counts.outbound as u64);
    CUSTOMERS_QUARANTINED_NOW.set_count(&[], counts.customers as u64);
}

pub(super) fn transition_seconds(from: Status, to: Status) -> Histogram {
    TRANSITION.histogram(&[("from", from.as_str()), ("to", to.as_str())])
}
