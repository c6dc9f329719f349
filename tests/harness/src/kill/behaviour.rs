//! What payers and PSPs do with a payment, and how it must end for that.

use payferry_domain::{Chain, Token};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// Seconds to pay for those who never do: the shortest that the interface takes.
pub const EXPIRES_SOON_SECS: u64 = 60;
/// Cents of the smallest and the largest payment.
const CENTS: std::ops::RangeInclusive<i64> = 100..=99_999;
/// Base units of a cent.
const CENT: i64 = 10_000;

/// What becomes of a payment, by those outside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Pays what is due, in one transfer.
    Exact,
    /// Pays too little, and the rest some time later.
    ShortThenRest,
    /// Pays too much.
    Over,
    /// Pays in two transfers at once.
    TwoTransfers,
    /// Pays with money from the sanctions list.
    Tainted,
    /// The PSP cancels, nobody pays.
    Cancels,
    /// Nobody pays.
    NeverPays,
}

/// How often each is, of a hundred.
const WEIGHTS: [(Behaviour, u32); 7] = [
    (Behaviour::Exact, 60),
    (Behaviour::ShortThenRest, 10),
    (Behaviour::Over, 8),
    (Behaviour::TwoTransfers, 10),
    (Behaviour::Tainted, 3),
    (Behaviour::Cancels, 5),
    (Behaviour::NeverPays, 4),
];

/// How a payment must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Its status.
    pub status: &'static str,
    /// Why it failed, if it did.
    pub failure_reason: Option<&'static str>,
    /// Events that it announces exactly once.
    pub announces: &'static [&'static str],
    /// Events that it may announce, once.
    pub may_announce: &'static [&'static str],
}

impl Behaviour {
    /// How a payment must end for this.
    pub const fn ends(self) -> Ends {
        const FAILED: &[&str] = &["payment.failed", "payin.failed"];
        const MISMATCHED: &[&str] = &["payment.mismatched", "payin.mismatched"];
        const UNDERPAID: &[&str] = &["payment.mismatched", "payin.underpaid", "payin.mismatched"];
        const SETTLED: &[&str] = &["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];
        match self {
            Self::Exact => Ends { status: "settled", failure_reason: None, announces: SETTLED, may_announce: &[] },
            Self::ShortThenRest | Self::TwoTransfers => {
                Ends { status: "settled", failure_reason: None, announces: SETTLED, may_announce: UNDERPAID }
            }
            Self::Over => Ends { status: "mismatched", failure_reason: None, announces: MISMATCHED, may_announce: &[] },
            Self::Tainted => failed_for("kyt_blocked", FAILED),
            Self::Cancels => failed_for("cancelled", FAILED),
            Self::NeverPays => failed_for("expired", FAILED),
        }
    }
}

const fn failed_for(reason: &'static str, announces: &'static [&'static str]) -> Ends {
    Ends { status: "failed", failure_reason: Some(reason), announces, may_announce: &[] }
}

/// One payment to be made, all of it decided by the seed and its number.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Its idempotency key, and its reference.
    pub key: String,
    /// What those outside do with it.
    pub behaviour: Behaviour,
    /// What is due, base units.
    pub units: i64,
    /// In which token.
    pub token: Token,
    /// On which chain, or `best`.
    pub chain: &'static str,
    /// Milliseconds before each step of whoever pays.
    pub waits_ms: [u64; 2],
}

impl Intent {
    /// The `number`th of a run.
    pub fn nth(seed: u64, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ number);
        let behaviour =
            WEIGHTS.choose_weighted(&mut random, |(_, weight)| *weight).map_or(Behaviour::Exact, |(b, _)| *b);
        let chains = [Chain::Base.as_str(), Chain::Polygon.as_str(), Chain::Arbitrum.as_str(), "best"];
        Self {
            key: format!("kill-{seed}-{number}"),
            behaviour,
            units: random.random_range(CENTS) * CENT,
            token: *Token::ALL.choose(&mut random).unwrap_or(&Token::Usdc),
            chain: chains.choose(&mut random).copied().unwrap_or("best"),
            waits_ms: [random.random_range(0..300), random.random_range(100..2_000)],
        }
    }

    /// What is sent to the payment's wallet, base units.
    pub fn transfers(&self) -> Vec<i64> {
        match self.behaviour {
            Behaviour::Exact | Behaviour::Tainted => vec![self.units],
            Behaviour::Over => vec![self.units + CENT],
            Behaviour::ShortThenRest => vec![self.units * 3 / 5, self.units - self.units * 3 / 5],
            Behaviour::TwoTransfers => vec![self.units / 2, self.units - self.units / 2],
            Behaviour::Cancels | Behaviour::NeverPays => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_everything_happens() {
        let intents: Vec<Intent> = (0..300).map(|number| Intent::nth(7, number)).collect();
        for (number, intent) in (0..).zip(&intents) {
            let again = Intent::nth(7, number);
            assert_eq!(
                (again.behaviour, again.units, again.waits_ms),
                (intent.behaviour, intent.units, intent.waits_ms)
            );
        }
        for (behaviour, _) in WEIGHTS {
            assert!(intents.iter().any(|intent| intent.behaviour == behaviour), "no {behaviour:?}");
        }
        for intent in &intents {
            let sum: i64 = intent.transfers().iter().sum();
            match intent.behaviour {
                Behaviour::Over => assert!(sum > intent.units),
                Behaviour::Cancels | Behaviour::NeverPays => assert_eq!(sum, 0),
                _ => assert_eq!(sum, intent.units),
            }
        }
        assert_ne!(Intent::nth(8, 0).key, intents[0].key);
    }
}
