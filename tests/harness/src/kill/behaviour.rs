//! Behaviours of payers and PSPs, and the expected result of each payment.

use payferry_domain::{Chain, Token};
use payferry_testkit::audit::expect::{EXPIRED, ExpectedEvent, OVERPAID, SETTLED, UNDERPAID};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use serde_json::Value;

use super::creation::Creation;

/// Expiry of payments that are never paid, in seconds: the interface's minimum.
pub const EXPIRES_SOON_SECS: u64 = 60;
/// Range of payment amounts, in cents.
const CENTS: std::ops::RangeInclusive<i64> = 100..=99_999;
/// Base units per cent.
const CENT: i64 = 10_000;
/// Excess of an overpayment, in base units: above the tolerance of every amount.
pub const EXCESS: i64 = 200 * CENT;

/// Behaviour of the payer and the PSP for one payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Pays the amount due in one transfer.
    Exact,
    /// Pays too little, and the rest later.
    ShortThenRest,
    /// Pays too much.
    Over,
    /// Pays in two transfers at once.
    TwoTransfers,
    /// Pays from a sanctioned address.
    Tainted,
    /// The PSP cancels; no payment is made.
    Cancels,
    /// No payment is made.
    NeverPays,
    /// Pays the amount due; after settlement the PSP refunds all of it.
    Returned,
    /// Pays the amount due; after settlement the PSP refunds a part, and then the rest.
    ReturnedInParts,
    /// Pays too much; the PSP refunds the excess and accepts the payment.
    OverReturned,
    /// Pays too little; the PSP accepts it.
    ShortAccepted,
    /// Pays too little; the PSP refunds it.
    ShortReturned,
    /// A transfer to a customer: pays the amount due, which is forwarded.
    SendsOn,
}

/// Frequency of each behaviour, in percent.
pub(super) const WEIGHTS: [(Behaviour, u32); 13] = [
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

/// Expected result of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    pub status: &'static str,
    pub failure_reason: Option<&'static str>,
    /// Events that must be published exactly once.
    pub announces: Vec<&'static str>,
    /// Events that may be published, at most once.
    pub may_announce: Vec<&'static str>,
}

impl Behaviour {
    /// Expected result of a payment with this behaviour.
    pub fn ends(self) -> Ends {
        let names = |events: &[ExpectedEvent]| events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>();
        let ends = |status, announces: &[&[ExpectedEvent]]| Ends {
            status,
            failure_reason: None,
            announces: names(&announces.concat()),
            may_announce: Vec::new(),
        };
        let failed_for = |reason| Ends { failure_reason: Some(reason), ..ends("failed", &[EXPIRED]) };
        match self {
            Self::Exact | Self::Returned | Self::ReturnedInParts => ends("settled", &[SETTLED]),
            Self::ShortThenRest | Self::TwoTransfers => {
                Ends { may_announce: names(UNDERPAID), ..ends("settled", &[SETTLED]) }
            }
            Self::Over => ends("mismatched", &[OVERPAID]),
            Self::OverReturned => ends("settled", &[OVERPAID, SETTLED]),
            Self::ShortAccepted => ends("settled", &[UNDERPAID, SETTLED]),
            Self::ShortReturned => ends("mismatched", &[UNDERPAID]),
            Self::SendsOn => Ends { announces: vec!["transfer.settled"], ..ends("settled", &[]) },
            Self::Tainted => failed_for("kyt_blocked"),
            Self::Cancels => failed_for("cancelled"),
            Self::NeverPays => failed_for("expired"),
        }
    }

    /// Returns true if the request creates a transfer to a customer instead of a payment.
    pub const fn is_transfer(self) -> bool {
        matches!(self, Self::SendsOn)
    }
}

/// One planned payment, determined by the seed and its number.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Idempotency key and reference.
    pub key: String,
    pub behaviour: Behaviour,
    /// Amount due, in base units.
    pub units: i64,
    pub token: Token,
    /// The chain, or `best`.
    pub chain: &'static str,
    /// Milliseconds before each transfer of the payer.
    pub waits_ms: [u64; 2],
}

impl Intent {
    /// The planned payment with this number.
    pub fn nth(seed: u64, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ number);
        let chosen = WEIGHTS.choose_weighted(&mut random, |(_, weight)| *weight).map_or(Behaviour::Exact, |(b, _)| *b);
        // A run starts with one of each behaviour, so that short runs include all of them.
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

    /// A payment that funds the PSP's outbound transfers: paid exactly and at once.
    pub fn funds(seed: u64, chain: Chain, token: Token, units: i64) -> Self {
        let key = format!("kill-{seed}-funds-{chain}-{token}");
        Self { key, behaviour: Behaviour::Exact, units, token, chain: chain.as_str(), waits_ms: [0, 0] }
    }

    /// The request that creates the payment, or the transfer to a customer.
    pub fn creation(&self, request: Value) -> Creation {
        let [path, below] =
            if self.behaviour.is_transfer() { ["/transfers"; 2] } else { ["/payments/initiate", "/payments"] };
        let (path, below) = (path.to_owned(), below.to_owned());
        Creation { key: self.key.clone(), path, below, request, id_field: "payment_id", ..Creation::default() }
    }

    /// Amounts sent to the payment's wallet, in base units.
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
    fn seed_determines_every_intent_and_all_behaviours_occur() {
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
