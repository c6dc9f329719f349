//! `[limits]`: how much may be sent, where the operator has not said otherwise of a PSP.
//!
//! Deliberately absent: a ceiling of settlements. A settlement moves money between our own vaults and the treasury, never
//! to somebody else, and holding it up would protect nobody.

use payferry_actors::psps::Ceilings;
use payferry_domain::Amount;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How much may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Limits {
    /// By one refund, payout, withdrawal or transfer.
    #[serde(deserialize_with = "tokens")]
    pub send_max: Amount,
    /// By a PSP in a token on one UTC day, over all chains.
    #[serde(deserialize_with = "tokens")]
    pub send_daily_max: Amount,
}

impl Limits {
    /// As the actors are told.
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
    use payferry_actors::psps::Ceilings;

    use crate::config::Config;

    #[test]
    fn the_defaults_are_those_of_the_actors() {
        assert_eq!(Config::defaults().limits.ceilings(), Ceilings::default());
    }
}
