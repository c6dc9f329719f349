//! Metrics of the background reconciliation: every name with its unit and meaning. No labels.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const DIFFERENCES: &str = "payferry_reconcile_differences";
const UNREAD: &str = "payferry_reconcile_chains_unread";
const AGE: &str = "payferry_reconcile_age_seconds";
const PAYMENTS: &str = "payferry_reconcile_payments_total";
const RUNS: &str = "payferry_reconcile_runs_total";

/// Registers the help texts.
pub(crate) fn describe() {
    describe_gauge!(DIFFERENCES, "Vaults that differ from the ledger, by the last background reconciliation.");
    describe_gauge!(UNREAD, "Chains with funds that the last background reconciliation could not read.");
    describe_gauge!(AGE, Unit::Seconds, "Time since the last background reconciliation ended.");
    describe_counter!(PAYMENTS, "Payments with vaults that the background reconciliation compared with the ledger.");
    describe_counter!(RUNS, "Completed background reconciliations.");
}

/// Exports the findings and their age.
#[allow(clippy::cast_precision_loss, reason = "counts and ages are far below 2^52")]
pub(super) fn record_findings(differences: usize, unread: usize, age_ms: Option<i64>) {
    // Before the first run there are no values.
    let Some(age_ms) = age_ms else { return };
    gauge!(DIFFERENCES).set(differences as f64);
    gauge!(UNREAD).set(unread as f64);
    gauge!(AGE).set(age_ms.max(0) as f64 / 1_000.0);
}

/// Counts a completed run.
pub(super) fn ran(payments: u64) {
    counter!(RUNS).increment(1);
    counter!(PAYMENTS).increment(payments);
}
