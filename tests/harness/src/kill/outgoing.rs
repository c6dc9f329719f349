//! Outbound transfers of the PSP: refunds, payouts and withdrawals, as requested and as seen from outside.

use std::fmt;
use std::str::FromStr;

use alloy::primitives::{Address, keccak256};
use payferry_domain::{Chain, Token};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::creation::Creation;
use super::payees::{Payee, Payees};
use crate::psp::decimal;

/// Share of payments that come with an order, in percent.
const ORDERS_OF_HUNDRED: u32 = 12;
/// Frequency of each kind of order, in percent: to a customer, to a blacklisted customer, to the PSP's own wallet.
const WEIGHTS: [(Order, u32); 3] = [(Order::Payout, 55), (Order::RefusedPayout, 10), (Order::Withdrawal, 35)];
/// Range of order amounts, in base units: so large that amounts rarely repeat.
const UNITS: std::ops::RangeInclusive<i64> = 10_000..=50_000_000;
/// Separates the random numbers of orders from those of payments.
const SALT: u64 = 0x6f72_6465_7200;

payferry_testkit::names! {
    /// Kind of an outbound transfer.
    Kind, "a kind of outbound transfer" {
        /// Back to a payer.
        Refund = "refund",
        /// To a customer.
        Payout = "payout",
        /// To the PSP's own wallet.
        Withdrawal = "withdrawal",
    }
}

impl Kind {
    fn creation(self, key: String, path: &str, request: Value) -> Creation {
        let id_field = if self == Self::Refund { "refund_id" } else { "id" };
        Creation { key, path: path.to_owned(), below: path.to_owned(), request, id_field, ..Creation::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Payout,
    RefusedPayout,
    Withdrawal,
}

/// One requested outbound transfer and its result.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub kind: Kind,
    /// The request and its result. Its body names no amount if it asks for all that is left.
    pub creation: Creation,
    /// The chain on which it must be sent.
    pub chain: Chain,
    pub token: Token,
    pub to: Address,
    /// Amount in base units.
    pub units: i64,
    /// The token refuses the recipient: the transfer must fail, and the money must stay.
    pub is_refused: bool,
}

impl Outgoing {
    /// A refund of a payment to a fresh address; the request names `units` unless it asks for all that is left.
    pub fn refund(payment: &Value, key: String, units: i64, is_all: bool) -> Self {
        let text = |field: &str| payment[field].as_str().unwrap_or_default();
        let to = Address::from_slice(&keccak256(&key)[12..]);
        let mut request = json!({"address": to.to_string()});
        if !is_all {
            request["amount"] = json!(decimal(units));
        }
        let path = format!("/payments/{}/refunds", text("payment_id"));
        Self {
            kind: Kind::Refund,
            creation: Kind::Refund.creation(key, &path, request),
            chain: named(text("chain")),
            token: named(text("currency")),
            to,
            units,
            is_refused: false,
        }
    }

    /// The order that comes with this payment number, if any.
    pub fn nth(seed: u64, number: u64, payees: &Payees) -> Option<Self> {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ number ^ SALT);
        // A run starts with one order of each kind, so that short runs include all of them.
        let first = usize::try_from(number).ok().and_then(|number| WEIGHTS.get(number));
        if !random.random_ratio(ORDERS_OF_HUNDRED, 100) && first.is_none() {
            return None;
        }
        let chosen = WEIGHTS.choose_weighted(&mut random, |(_, weight)| *weight).map_or(Order::Payout, |(o, _)| *o);
        let order = first.map_or(chosen, |(order, _)| *order);
        let chain = Chain::ALL.choose(&mut random).copied()?;
        let is_refused = order == Order::RefusedPayout;
        // USDT's blacklist applies to senders only.
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
        Some(Self { kind, creation: kind.creation(key, path, request), chain, token, to, units, is_refused })
    }

    /// Name of the amount field in events. A refund's events belong to its payment.
    pub const fn amount_field(&self) -> &'static str {
        match self.kind {
            Kind::Refund => "refund_amount",
            Kind::Payout | Kind::Withdrawal => "amount",
        }
    }

    /// Name of the address field in events. A refund's events belong to its payment.
    pub const fn address_field(&self) -> &'static str {
        match self.kind {
            Kind::Refund => "refund_address",
            Kind::Payout | Kind::Withdrawal => "address",
        }
    }

    /// Expected final status.
    pub const fn ends(&self) -> &'static str {
        if self.is_refused { "failed" } else { "sent" }
    }

    /// Events that must be published exactly once.
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

    /// Returns true if the service reports it as sent at the end.
    pub fn is_sent(&self) -> bool {
        self.creation.read.as_ref().is_some_and(|read| read["status"] == "sent")
    }

    /// Returns true if it is paid from a payment's wallet instead of the PSP's vault.
    pub fn is_from_wallet(&self) -> bool {
        self.creation.made.as_ref().is_some_and(|made| made["source"] == "payment")
    }
}

fn named<T: FromStr<Err: fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_the_orders_and_every_kind_occurs() {
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
            (0..400).filter_map(|n| Outgoing::nth(7, n, &payees)).map(|order| order.creation.request).collect();
        assert_eq!(orders.iter().map(|order| order.creation.request.clone()).collect::<Vec<_>>(), again);
    }
}
