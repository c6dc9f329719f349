//! Configuration of the auditors: one checks the ledger ([`crate::ledger::check`]), the other compares the vaults on
//! the chains with the ledger ([`crate::reconcile::watch`]). They only report; the operator fixes.

use std::time::Duration;

/// Default interval of background reconciliations.
pub const VAULTS_INTERVAL: Duration = Duration::from_hours(1);
/// Default interval of ledger checks.
pub const LEDGER_INTERVAL: Duration = Duration::from_secs(5);

/// Intervals and scope of the auditors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditorsConfig {
    /// Interval of ledger checks.
    pub ledger_interval: Duration,
    /// Interval of vault checks; `None`: only by command.
    pub vaults_interval: Option<Duration>,
    /// True if the treasury's funds are never moved, so that deviations there are differences, too.
    pub treasury_kept: bool,
}

impl Default for AuditorsConfig {
    fn default() -> Self {
        Self { ledger_interval: LEDGER_INTERVAL, vaults_interval: Some(VAULTS_INTERVAL), treasury_kept: false }
    }
}
