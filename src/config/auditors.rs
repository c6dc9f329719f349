//! `[auditors]`: how often the books are looked at.

use std::num::NonZeroU64;
use std::time::Duration;

use payferry_actors::auditors::AuditorsConfig;
use serde::Deserialize;

/// How often the auditors look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Auditors {
    /// Between two looks at the ledger.
    pub ledger_interval_ms: NonZeroU64,
    /// Between two looks at the vaults; 0: never.
    pub vaults_interval_ms: u64,
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
        }
    }
}

#[cfg(test)]
mod tests {
    use payferry_actors::auditors::AuditorsConfig;

    use crate::config::Config;

    #[test]
    fn the_defaults_are_those_of_the_actors() {
        assert_eq!(Config::defaults().auditors.auditors(), AuditorsConfig::default());
    }
}
