//! `[auditors]`: how often the books are looked at, and which.

use std::num::NonZeroU64;
use std::time::Duration;

use payferry_actors::auditors::AuditorsConfig;
use serde::Deserialize;

/// How often the auditors look, and at what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Auditors {
    /// Between two looks at the ledger.
    pub ledger_interval_ms: NonZeroU64,
    /// Between two looks at the vaults; 0: never.
    pub vaults_interval_ms: u64,
    /// Whether nobody moves the treasury's money, so that it is held against the ledger, too.
    pub treasury_kept: bool,
}

impl Auditors {
    /// As the actors are told.
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
    fn the_defaults_are_those_of_the_actors() {
        assert_eq!(Config::defaults().auditors.auditors(), AuditorsConfig::default());
    }

    #[test]
    fn the_actors_are_told_what_is_configured() {
        let config = Config::defaults().auditors;
        assert!(!config.auditors().treasury_kept);
        let kept = Auditors { vaults_interval_ms: 0, treasury_kept: true, ..config }.auditors();
        assert_eq!((kept.vaults_interval, kept.treasury_kept), (None, true));
    }
}
