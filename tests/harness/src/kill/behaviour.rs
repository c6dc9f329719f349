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
/// How much too much is, base units.
pub const EXCESS: i64 = CENT;

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
    /// Pays what is due; once it is settled, the PSP sends all of it back.
    Returned,
    /// Pays what is due; once it is settled, the PSP sends a part of it back, and then the rest.
    ReturnedInParts,
    /// Pays too much; the PSP sends the excess back and accepts the payment.
    OverReturned,
    /// Pays too little; the PSP accepts it.
    ShortAccepted,
    /// Pays too little; the PSP sends it back.
    ShortReturned,
    /// It is a transfer to a customer: pays what is due, which is sent on.
    SendsOn,
}

/// How often each is, of a hundred.
const WEIGHTS: [(Behaviour, u32); 13] = [
    (Behaviour::Exact, 48),
    (Behaviour::ShortThenRest, 8),
    (Behaviour::Over, 4),
    (Behaviour::TwoTransfers, 8),
    (Behaviour::Tainted, 3),
    (Behaviour::Cancels, 4),
    (Behaviour::NeverPays, 4),
    (Behaviour::Returned, 4),
    (Behaviour::ReturnedInParts, 3),
    (Behaviour::OverReturned, 3),
    (Behaviour::ShortAccepted, 3),
    (Behaviour::ShortReturned, 3),
    (Behaviour::SendsOn, 5),
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
        // Each begins with what a mismatch announces and ends with what a settlement does.
        const OVER_SETTLED: &[&str] = &[
            "payment.mismatched",
            "payin.mismatched",
            "payment.confirmed",
            "payin.confirmed",
            "payment.settled",
            "payin.settled",
        ];
        const SHORT_SETTLED: &[&str] = &[
            "payment.mismatched",
            "payin.underpaid",
            "payin.mismatched",
            "payment.confirmed",
            "payin.confirmed",
            "payment.settled",
            "payin.settled",
        ];
        match self {
            Self::Exact | Self::Returned | Self::ReturnedInParts => ends("settled", SETTLED),
            Self::ShortThenRest | Self::TwoTransfers => Ends { may_announce: UNDERPAID, ..ends("settled", SETTLED) },
            Self::Over => ends("mismatched", MISMATCHED),
            Self::OverReturned => ends("settled", OVER_SETTLED),
            Self::ShortAccepted => ends("settled", SHORT_SETTLED),
            Self::ShortReturned => ends("mismatched", UNDERPAID),
            Self::SendsOn => ends("settled", &["transfer.settled"]),
            Self::Tainted => failed_for("kyt_blocked", FAILED),
            Self::Cancels => failed_for("cancelled", FAILED),
            Self::NeverPays => failed_for("expired", FAILED),
        }
    }

    /// Whether what is made is a transfer to a customer instead of a payment.
    pub const fn is_transfer(self) -> bool {
        matches!(self, Self::SendsOn)
    }

    /// Where it is asked for.
    pub const fn path(self) -> &'static str {
        if self.is_transfer() { "/transfers" } else { "/payments/initiate" }
    }

    /// How many refunds the PSP asks for.
    pub const fn refunds(self) -> usize {
        match self {
            Self::Returned | Self::OverReturned | Self::ShortReturned => 1,
            Self::ReturnedInParts => 2,
            _ => 0,
        }
    }
}

const fn ends(status: &'static str, announces: &'static [&'static str]) -> Ends {
    Ends { status, failure_reason: None, announces, may_announce: &[] }
}

const fn failed_for(reason: &'static str, announces: &'static [&'static str]) -> Ends {
    Ends { failure_reason: Some(reason), ..ends("failed", announces) }
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
        let chosen = WEIGHTS.choose_weighted(&mut random, |(_, weight)| *weight).map_or(Behaviour::Exact, |(b, _)| *b);
        // A run begins with one of each, so that none is missing in a short one.
        let first = usize::try_from(number).ok().and_then(|number| WEIGHTS.get(number));
        let behaviour = first.map_or(chosen, |(behaviour, _)| *behaviour);
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

    /// What the PSP's balance lives on while it pays out more than comes in: paid exactly, at once.
    pub fn funds(seed: u64, chain: Chain, token: Token, units: i64) -> Self {
        let key = format!("kill-{seed}-funds-{chain}-{token}");
        Self { key, behaviour: Behaviour::Exact, units, token, chain: chain.as_str(), waits_ms: [0, 0] }
    }

    /// What is sent to the payment's wallet, base units.
    pub fn transfers(&self) -> Vec<i64> {
        match self.behaviour {
            Behaviour::Exact
            | Behaviour::Tainted
            | Behaviour::Returned
            | Behaviour::ReturnedInParts
            | Behaviour::SendsOn => vec![self.units],
            Behaviour::Over | Behaviour::OverReturned => vec![self.units + EXCESS],
            Behaviour::ShortThenRest => vec![self.units * 3 / 5, self.units - self.units * 3 / 5],
            Behaviour::ShortAccepted | Behaviour::ShortReturned => vec![self.units * 3 / 5],
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
            let of_it = |part: &[Intent]| part.iter().any(|intent| intent.behaviour == behaviour);
            assert!(of_it(&intents[..WEIGHTS.len()]) && of_it(&intents[WEIGHTS.len()..]), "no {behaviour:?}");
        }
        for intent in &intents {
            let sum: i64 = intent.transfers().iter().sum();
            match intent.behaviour {
                Behaviour::Over | Behaviour::OverReturned => assert!(sum > intent.units),
                Behaviour::ShortAccepted | Behaviour::ShortReturned => assert!(0 < sum && sum < intent.units),
                Behaviour::Cancels | Behaviour::NeverPays => assert_eq!(sum, 0),
                _ => assert_eq!(sum, intent.units),
            }
        }
        assert_ne!(Intent::nth(8, 0).key, intents[0].key);
        assert_eq!(WEIGHTS.iter().map(|(_, weight)| weight).sum::<u32>(), 100);
    }
}
