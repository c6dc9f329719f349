//! Metrics of the background reconciliation. No labels.

payferry_runtime::metrics! {
    Gauge DIFFERENCES = "payferry_reconcile_differences",
        "Vaults that differ from the ledger, by the last background reconciliation.";
    Gauge UNREAD = "payferry_reconcile_chains_unread",
        "Chains with funds that the last background reconciliation could not read.";
    Gauge(Seconds) AGE = "payferry_reconcile_age_seconds", "Time since the last background reconciliation ended.";
    Counter PAYMENTS = "payferry_reconcile_payments_total",
        "Payments with vaults that the background reconciliation compared with the ledger.";
    Counter RUNS = "payferry_reconcile_runs_total", "Completed background reconciliations.";
}

/// Exports the findings and their age.
#[allow(clippy::cast_precision_loss, reason = "ages are far below 2^52")]
pub(super) fn record_findings(differences: usize, unread: usize, age_ms: Option<i64>) {
    // Before the first run there are no values.
    let Some(age_ms) = age_ms else { return };
    DIFFERENCES.set_count(&[], differences as u64);
    UNREAD.set_count(&[], unread as u64);
    AGE.set(&[], age_ms.max(0) as f64 / 1_000.0);
}
