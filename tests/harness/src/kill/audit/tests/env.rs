//! Evidence of a run without faults: one payment of each behaviour, and an order of each kind.

use std::time::Instant;

use alloy::primitives::{Address, B256};
use payferry_domain::{Chain, Token};
use serde_json::{Value, json};

use super::super::super::behaviour::{Behaviour, EXCESS, Intent, WEIGHTS};
use super::super::super::creation::Creation;
use super::super::super::evidence::Evidence;
use super::super::super::evidence::chain::{ChainEvidence, Movement, SentLog, SettledLog};
use super::super::super::load::{Sent, Story};
use super::super::super::outgoing::{Kind, Outgoing};
use crate::psp::decimal;
use crate::receiver::Delivery;

const DUE: i64 = 100_000_000;
const FEE: i64 = 1_000_000;
const VAULT: Address = Address::repeat_byte(0xaa);
const TREASURY: Address = Address::repeat_byte(0xbb);
const PAYER: Address = Address::repeat_byte(0xcc);
/// Recipient of payouts and transfers.
pub const CUSTOMER: Address = Address::repeat_byte(0xdd);
/// Recipient that the token refuses.
pub const REFUSED: Address = Address::repeat_byte(0xde);
/// Withdrawal wallet of the PSP.
pub const OWN: Address = Address::repeat_byte(0xdf);

fn hash(number: u8, of: u8) -> B256 {
    B256::from([number, of].repeat(16).as_slice().try_into().unwrap_or([0; 32]))
}

/// A run without faults: `pay_1` to `pay_13` in the order of [`WEIGHTS`], with their refunds `rf_8` and so on, the payouts
/// `po_1` and `po_2` (refused), and the withdrawal `wd_3`.
pub fn faultless() -> Evidence {
    let base =
        ChainEvidence { nonces: [(5, 5); 2], psp_vault: VAULT, treasury_at: TREASURY, ..ChainEvidence::default() };
    let mut evidence = Evidence { chains: [(Chain::Base, base)].into(), ..Evidence::default() };
    for (number, behaviour) in (1..).zip(WEIGHTS.map(|(behaviour, _)| behaviour)) {
        Play { evidence: &mut evidence, number, id: format!("pay_{number}"), sequence: 0 }.payment(behaviour);
    }
    for (number, kind, to) in [(1, Kind::Payout, CUSTOMER), (2, Kind::Payout, REFUSED), (3, Kind::Withdrawal, OWN)] {
        let id = format!("{}_{number}", if kind == Kind::Payout { "po" } else { "wd" });
        let out = Outgoing { kind, to, is_refused: to == REFUSED, ..order(&id, 5_000_000 + i64::from(number)) };
        let out = Play { evidence: &mut evidence, number: 100 + number, id, sequence: 0 }.out(out, VAULT);
        evidence.listed_orders.extend(out.creation.id().map(str::to_owned));
        evidence.orders.push(out);
    }
    let base = evidence.chains.get_mut(&Chain::Base).unwrap();
    for token in Token::ALL {
        let (vault, treasury) = (base.held(token, VAULT), base.held(token, TREASURY));
        base.vault.insert(token, vault);
        base.treasury.insert(token, treasury);
        evidence.ledger.balances.push(json!({
            "chain": "base", "currency": token.as_str(), "token_address": token.as_str(), "available": decimal(vault),
            "pending": "0.00", "reserved": "0.00",
        }));
    }
    evidence
}

fn order(key: &str, units: i64) -> Outgoing {
    let payment = json!({"payment_id": "", "chain": "base", "currency": "USDC"});
    Outgoing { units, ..Outgoing::refund(&payment, key.to_owned(), units, false) }
}

/// Adds the evidence of one payment or order.
struct Play<'a> {
    evidence: &'a mut Evidence,
    number: u8,
    id: String,
    sequence: u64,
}

impl Play<'_> {
    fn payment(mut self, behaviour: Behaviour) {
        let (id, number) = (self.id.clone(), self.number);
        let intent = Intent {
            key: format!("key-{number}"),
            behaviour,
            units: DUE,
            token: Token::Usdc,
            chain: "base",
            waits_ms: [0, 0],
        };
        let wallet = Address::repeat_byte(number);
        let sends = (1..).zip(intent.transfers());
        let sent: Vec<Sent> = sends.map(|(of, units)| self.paid(wallet, units, hash(number, of))).collect();
        let paid: i64 = sent.iter().map(|sent| sent.units).sum();
        let made = json!({
            "payment_id": id, "status": "pending", "amount": decimal(DUE), "currency": "USDC", "chain": "base",
            "token_address": "0x1", "intermediary_wallet": wallet.to_string(), "magic_link": "http://x/pay/y",
        });
        let ends = behaviour.ends();
        for name in &ends.announces {
            self.announce(name, &json!({"payment_id": id}));
        }
        let (early, late): (&[i64], &[i64]) = match behaviour {
            Behaviour::OverReturned => (&[EXCESS], &[]),
            Behaviour::ShortReturned => (&[DUE * 3 / 5], &[]),
            Behaviour::Returned => (&[], &[DUE]),
            Behaviour::ReturnedInParts => (&[], &[DUE / 4, DUE * 3 / 4]),
            _ => (&[], &[]),
        };
        let mut refunds = Vec::new();
        for units in early {
            refunds.push(self.refund(&made, *units, refunds.len(), wallet));
        }
        let settlement = if ends.status == "settled" {
            self.settled(behaviour, wallet, paid - early.iter().sum::<i64>())
        } else {
            Value::Null
        };
        for units in late {
            refunds.push(self.refund(&made, *units, refunds.len(), VAULT));
        }
        let counts = behaviour != Behaviour::Tainted;
        let transfer = |sent: &Sent| {
            json!({
                "tx_hash": sent.tx_hash.to_string(), "chain": "base", "amount": decimal(sent.units), "status": "final",
                "counted": counts,
            })
        };
        let more = json!({
            "reference": intent.key, "status": ends.status, "failure_reason": ends.failure_reason, "labels": [],
            "amount_received": decimal(if counts { paid } else { 0 }), "settlement": settlement,
            "transfers": sent.iter().map(transfer).collect::<Vec<_>>(), "address": CUSTOMER.to_string(),
            "refunds": refunds.iter().map(|refund| refund.creation.read.clone()).collect::<Vec<_>>(),
        });
        let mut read = made.clone();
        read.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.evidence.listed.push(id);
        let mut creation = intent.creation(json!({}));
        (creation.replayed, creation.made, creation.read) = (Some(made.clone()), Some(made), Some(read));
        let to = behaviour.is_transfer().then_some(CUSTOMER);
        self.evidence.stories.push(Story { intent, creation, sent, to, refunds });
    }

    fn paid(&mut self, to: Address, units: i64, tx_hash: B256) -> Sent {
        self.moved(PAYER, to, units, tx_hash);
        self.posted("received", "external", "payment", units, &tx_hash.to_string());
        Sent { chain: Chain::Base, tx_hash, units }
    }

    fn settled(&mut self, behaviour: Behaviour, wallet: Address, amount: i64) -> Value {
        let tx_hash = hash(self.number, 9);
        let text = tx_hash.to_string();
        if behaviour.is_transfer() {
            self.moved(wallet, CUSTOMER, amount, tx_hash);
            self.posted("delivered", "payment", "external", amount, &text);
            let log = SentLog { vault: wallet, token: Some(Token::Usdc), to: CUSTOMER, units: amount, tx_hash };
            self.base().sent.push(log);
            return json!({
                "tx_hash": text, "amount": decimal(amount), "psp_amount": Value::Null, "treasury_fee": Value::Null,
            });
        }
        let psp_amount = amount - FEE;
        self.base().settled.push(SettledLog {
            vault: wallet,
            psp_vault: VAULT,
            token: Some(Token::Usdc),
            psp_amount,
            treasury_fee: FEE,
            tx_hash,
        });
        self.moved(wallet, VAULT, psp_amount, tx_hash);
        self.moved(wallet, TREASURY, FEE, tx_hash);
        self.posted("settled", "payment", "psp", psp_amount, &text);
        self.posted("fee", "payment", "treasury", FEE, &text);
        json!({"tx_hash": text, "psp_amount": decimal(psp_amount), "treasury_fee": decimal(FEE)})
    }

    fn refund(&mut self, payment: &Value, units: i64, ordinal: usize, vault: Address) -> Outgoing {
        let key = format!("rf_{}{}", self.number, ["", "b"][ordinal]);
        self.out(Outgoing::refund(payment, key, units, false), vault)
    }

    /// Sends it, unless the token refuses it; its key becomes its id.
    fn out(&mut self, mut out: Outgoing, vault: Address) -> Outgoing {
        let (id, source) = (out.creation.key.clone(), if vault == VAULT { "psp" } else { "payment" });
        let tx_hash = hash(self.number, 20 + u8::try_from(self.sequence).unwrap());
        let mut made = json!({
            "amount": decimal(out.units), "currency": "USDC", "chain": "base", "token_address": "0x1",
            "address": out.to.to_string(), "source": source, "status": "pending",
        });
        made[out.creation.id_field] = json!(id);
        let mut read = made.clone();
        read["status"] = json!(out.ends());
        if vault == VAULT {
            self.posted("reserved", "psp", "in_flight", out.units, &id);
        }
        if out.is_refused {
            self.posted("returned", "in_flight", "psp", out.units, &id);
        } else {
            read["tx_hash"] = json!(tx_hash.to_string());
            self.moved(vault, out.to, out.units, tx_hash);
            let from = if vault == VAULT { "in_flight" } else { "payment" };
            self.posted("sent", from, "external", out.units, &id);
            let log = SentLog { vault, token: Some(Token::Usdc), to: out.to, units: out.units, tx_hash };
            self.base().sent.push(log);
        }
        for name in out.announces() {
            let mut body = json!({"payment_id": self.id});
            body[out.amount_field()] = json!(decimal(out.units));
            // Events contain lower-case addresses, reads contain checksum addresses.
            body[out.address_field()] = json!(out.to.to_string().to_lowercase());
            if out.kind == Kind::Refund {
                body["refund_id"] = json!(id);
            }
            if name.split_once('.').is_some_and(|(_, did)| did == "sent") {
                body["tx_hash"] = read["tx_hash"].clone();
            }
            self.announce(name, &body);
        }
        let Creation { replayed, made: answer, read: shown, .. } = &mut out.creation;
        (*replayed, *answer, *shown) = (Some(made.clone()), Some(made), Some(read));
        out
    }

    fn announce(&mut self, name: &str, body: &Value) {
        self.sequence += 1;
        let event_id = format!("evt_{}_{}", self.number, self.sequence);
        let mut event = json!({"event": name, "event_id": event_id, "sequence": self.sequence});
        event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        self.evidence.deliveries.push(Delivery {
            webhook_id: event_id,
            body: event.to_string(),
            answered: 200,
            at: Instant::now(),
        });
        self.evidence.feed.push(event);
    }

    fn posted(&mut self, kind: &str, debit: &str, credit: &str, units: i64, reference: &str) {
        self.evidence.ledger.entries.push(json!({
            "subject": self.id, "kind": kind, "debit": debit, "credit": credit, "amount": decimal(units), "chain": "base",
            "token_address": "USDC", "reference": reference,
        }));
    }

    fn moved(&mut self, from: Address, to: Address, units: i64, tx_hash: B256) {
        self.base().moved(Movement { token: Token::Usdc, from, to, units, tx_hash });
    }

    fn base(&mut self) -> &mut ChainEvidence {
        self.evidence.chains.get_mut(&Chain::Base).unwrap()
    }
}
