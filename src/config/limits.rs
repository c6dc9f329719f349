//! `[limits]`: ceilings of outbound transfers, for PSPs without their own ceilings.
//!
//! Deliberately absent: a ceiling for settlements. A settlement moves money only between Payferry's vaults and the
//! treasury, so a ceiling would protect nothing.

use payferry_domain::Amount;
use payferry_journal::psps::Ceilings;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Ceilings of outbound transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Limits {
    /// Maximum of one refund, payout, withdrawal or transfer.
    #[serde(deserialize_with = "tokens")]
    pub send_max: Amount,
    /// Maximum per PSP, token and UTC day, over all chains.
    #[serde(deserialize_with = "tokens")]
    pub send_daily_max: Amount,
}

impl Limits {
    /// Settings for the actors.
    pub const fn ceilings(self) -> Ceilings {
        Ceilings { send_max: self.send_max, send_daily_max: self.send_daily_max }
    }
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use payferry_journal::psps::Ceilings;

    use crate::config::Config;

    #[test]
    fn defaults_equal_the_actor_defaults() {
        assert_eq!(Config::defaults().limits.ceilings(), Ceilings::default());
    }
}
