//! Money that the PSP sends out: refunds, payouts and withdrawals, as they are asked for and as those outside saw them.

use std::fmt;
use std::str::FromStr;

use alloy::primitives::{Address, keccak256};
use payferry_domain::{Chain, Token};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::payees::{Payee, Payees};
use crate::psp::decimal;

/// How often a payment that is begun comes with an order, of a hundred.
const ORDERS_OF_HUNDRED: u32 = 12;
/// How often each order is, of a hundred: to a customer, to one whom USDC refuses, to the PSP's own wallet.
const WEIGHTS: [(Order, u32); 3] = [(Order::Payout, 55), (Order::RefusedPayout, 10), (Order::Withdrawal, 35)];
/// Base units of the smallest and the largest order: so many that hardly two are of the same.
const UNITS: std::ops::RangeInclusive<i64> = 10_000..=50_000_000;
/// Sets the chances of orders apart from those of payments.
const SALT: u64 = 0x6f72_6465_7200;

/// What leaves a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Back to a payer.
    Refund,
    /// To a customer.
    Payout,
    /// To the PSP's own wallet.
    Withdrawal,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refund => "refund",
            Self::Payout => "payout",
            Self::Withdrawal => "withdrawal",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Payout,
    RefusedPayout,
    Withdrawal,
}

/// One request for money to be sent, and what came of it.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// What it is.
    pub kind: Kind,
    /// Its idempotency key.
    pub key: String,
    /// Where it is asked for; below it stands what was made.
    pub path: String,
    /// What was asked for.
    pub request: Value,
    /// On which chain it must be sent.
    pub chain: Chain,
    /// In which token.
    pub token: Token,
    /// To whom.
    pub to: Address,
    /// How much, base units, whether the request said so or meant all.
    pub units: i64,
    /// The token refuses to go there: it must fail, and the money stay.
    pub is_refused: bool,
    /// The first answer: from then on it must not be lost.
    pub made: Option<Value>,
    /// A request was refused that must not be.
    pub trouble: Option<String>,
    /// As it was read in the end.
    pub read: Option<Value>,
    /// The answer to the same request with the same key in the end.
    pub replayed: Option<Value>,
}

impl Outgoing {
    /// A refund of a payment, to an account that nobody else uses; `units` are named unless it is to be all that there is.
    pub fn refund(payment: &Value, key: String, units: i64, is_all: bool) -> Self {
        let text = |field: &str| payment[field].as_str().unwrap_or_default();
        let to = Address::from_slice(&keccak256(&key)[12..]);
        let mut request = json!({"address": to.to_string()});
        if !is_all {
            request["amount"] = json!(decimal(units));
        }
        Self {
            kind: Kind::Refund,
            path: format!("/payments/{}/refunds", text("payment_id")),
            request,
            chain: named(text("chain")),
            token: named(text("currency")),
            to,
            units,
            is_refused: false,
            ..Self::asked(key)
        }
    }

    /// The order that comes with the `number`th payment of a run, if one does.
    pub fn nth(seed: u64, number: u64, payees: &Payees) -> Option<Self> {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ number ^ SALT);
        // A run begins with one of each, so that none is missing in a short one.
        let first = usize::try_from(number).ok().and_then(|number| WEIGHTS.get(number));
        if !random.random_ratio(ORDERS_OF_HUNDRED, 100) && first.is_none() {
            return None;
        }
        let chosen = WEIGHTS.choose_weighted(&mut random, |(_, weight)| *weight).map_or(Order::Payout, |(o, _)| *o);
        let order = first.map_or(chosen, |(order, _)| *order);
        let chain = Chain::ALL.choose(&mut random).copied()?;
        let is_refused = order == Order::RefusedPayout;
        // The blacklist of the other one binds senders alone.
        let token = if is_refused { Token::Usdc } else { *Token::ALL.choose(&mut random)? };
        let units = random.random_range(UNITS);
        let key = format!("kill-{seed}-{number}-order");
        let request = json!({
            "amount": decimal(units), "currency": token.as_str(), "chain": chain.as_str(), "reference": key,
        });
        let payout = |payee: &Payee| {
            let mut request = request.clone();
            request["customer_id"] = json!(payee.customer_id);
            (Kind::Payout, "/payouts", request, payee.wallet)
        };
        let (kind, path, request, to) = match order {
            Order::Payout => payout(payees.customers.choose(&mut random)?),
            Order::RefusedPayout => payout(&payees.refused),
            Order::Withdrawal => (Kind::Withdrawal, "/withdrawals", request, payees.withdrawal_wallet),
        };
        Some(Self { kind, path: path.to_owned(), request, chain, token, to, units, is_refused, ..Self::asked(key) })
    }

    fn asked(key: String) -> Self {
        Self {
            kind: Kind::Payout,
            key,
            path: String::new(),
            request: Value::Null,
            chain: Chain::Base,
            token: Token::Usdc,
            to: Address::ZERO,
            units: 0,
            is_refused: false,
            made: None,
            trouble: None,
            read: None,
            replayed: None,
        }
    }

    /// Its id, once it was acknowledged.
    pub fn id(&self) -> Option<&str> {
        self.made.as_ref()?[self.id_field()].as_str()
    }

    /// What its record calls its id.
    pub const fn id_field(&self) -> &'static str {
        match self.kind {
            Kind::Refund => "refund_id",
            Kind::Payout | Kind::Withdrawal => "id",
        }
    }

    /// What its events call its amount: a refund's are its payment's.
    pub const fn amount_field(&self) -> &'static str {
        match self.kind {
            Kind::Refund => "refund_amount",
            Kind::Payout | Kind::Withdrawal => "amount",
        }
    }

    /// What its events call the address that it goes to: a refund's events are its payment's.
    pub const fn address_field(&self) -> &'static str {
        match self.kind {
            Kind::Refund => "refund_address",
            Kind::Payout | Kind::Withdrawal => "address",
        }
    }

    /// For findings: what was made, or its request's key.
    pub fn name(&self) -> String {
        self.id().map_or_else(|| format!("request {}", self.key), str::to_owned)
    }

    /// The status that it must have in the end.
    pub const fn ends(&self) -> &'static str {
        if self.is_refused { "failed" } else { "sent" }
    }

    /// Events that it announces exactly once.
    pub const fn announces(&self) -> &'static [&'static str] {
        match (self.kind, self.is_refused) {
            (Kind::Refund, false) => &["refund.sent"],
            (Kind::Refund, true) => &["refund.failed"],
            (Kind::Payout, false) => &["payout.pending", "payout.sent"],
            (Kind::Payout, true) => &["payout.pending", "payout.failed"],
            (Kind::Withdrawal, false) => &["withdraw.sent"],
            (Kind::Withdrawal, true) => &["withdraw.failed"],
        }
    }

    /// Whether the service says in the end that it was sent.
    pub fn is_sent(&self) -> bool {
        self.read.as_ref().is_some_and(|read| read["status"] == "sent")
    }

    /// Whether it is taken from a payment's wallet instead of the PSP's vault.
    pub fn is_from_wallet(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made["source"] == "payment")
    }
}

fn named<T: FromStr<Err: fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_orders_and_every_kind_is_there() {
        let payee = |byte: u8| Payee { customer_id: format!("cr_{byte}"), wallet: Address::repeat_byte(byte) };
        let payees = Payees {
            customers: vec![payee(1), payee(2)],
            refused: payee(3),
            withdrawal_wallet: Address::repeat_byte(4),
        };
        let orders: Vec<Outgoing> = (0..400).filter_map(|number| Outgoing::nth(7, number, &payees)).collect();
        assert!((25..80).contains(&orders.len()), "{} of 400", orders.len());
        let kinds: Vec<(Kind, bool)> = orders[..3].iter().map(|order| (order.kind, order.is_refused)).collect();
        assert_eq!(kinds, [(Kind::Payout, false), (Kind::Payout, true), (Kind::Withdrawal, false)]);
        for byte in 1..=4 {
            let to = orders.iter().filter(|order| order.to == Address::repeat_byte(byte));
            assert!(to.clone().count() > 0, "nothing to {byte}");
            assert!(to.clone().all(|order| order.is_refused == (byte == 3)));
            assert!(to.clone().all(|order| (order.kind == Kind::Withdrawal) == (byte == 4)));
        }
        let again: Vec<Value> =
            (0..400).filter_map(|n| Outgoing::nth(7, n, &payees)).map(|order| order.request).collect();
        assert_eq!(orders.iter().map(|order| order.request.clone()).collect::<Vec<_>>(), again);
    }
}
