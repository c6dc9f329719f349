//! `[auditors]`: the audits that run, and their intervals.

use std::num::NonZeroU64;
use std::time::Duration;

use payferry_actors::auditors::AuditorsConfig;
use serde::Deserialize;

/// The audits that run, and their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Auditors {
    /// Interval between audits of the ledger.
    pub ledger_interval_ms: NonZeroU64,
    /// Interval between audits of the vaults; 0: never.
    pub vaults_interval_ms: u64,
    /// True if the treasury's balance is compared with the ledger too. Requires that no money is withdrawn from it.
    pub treasury_kept: bool,
}

impl Auditors {
    /// Settings of the auditor actors.
    pub const fn auditors(self) -> AuditorsConfig {
        AuditorsConfig {
            ledger_interval: Duration::from_millis(self.ledger_interval_ms.get()),
            vaults_interval: match self.vaults_interval_ms {
                0 => None,
                millis => Some(Duration::from_millis(millis)),
            },
            treasury_kept: self.treasury_kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use payferry_actors::auditors::AuditorsConfig;

    use super::Auditors;
    use crate::config::Config;

    #[test]
    fn defaults_equal_the_actor_defaults() {
        assert_eq!(Config::defaults().auditors.auditors(), AuditorsConfig::default());
    }

    #[test]
    fn passes_configured_values_to_the_actors() {
        let config = Config::defaults().auditors;
        assert!(!config.auditors().treasury_kept);
        let kept = Auditors { vaults_interval_ms: 0, treasury_kept: true, ..config }.auditors();
        assert_eq!((kept.vaults_interval, kept.treasury_kept), (None, true));
    }
}
