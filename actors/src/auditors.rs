//! The auditors: one holds the ledger against itself ([`crate::ledger::check`]), one the vaults on the chains against the ledger
//! ([`crate::reconcile::watch`]). They only look, and tell; the operator mends.
//!
//! Owned here: how often they look, and at what.

use std::time::Duration;

/// Between two reconciliations in the background, unless configured otherwise.
pub const VAULTS_INTERVAL: Duration = Duration::from_hours(1);
/// Between two looks at the ledger, unless configured otherwise.
pub const LEDGER_INTERVAL: Duration = Duration::from_secs(5);

/// How often the auditors look, and at what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditorsConfig {
    /// Between two looks at the ledger.
    pub ledger_interval: Duration,
    /// Between two looks at the vaults; `None`: they are looked at only by command.
    pub vaults_interval: Option<Duration>,
    /// Whether nobody moves the treasury's money, so that what differs there is a difference, too.
    pub treasury_kept: bool,
}

impl Default for AuditorsConfig {
    fn default() -> Self {
        Self { ledger_interval: LEDGER_INTERVAL, vaults_interval: Some(VAULTS_INTERVAL), treasury_kept: false }
    }
}
