//! Injected faults of outbound transfers.

use alloy::primitives::{Address, B256};
use payferry_domain::Token;
use serde_json::{Value, json};

use super::super::super::evidence::Evidence;
use super::super::super::evidence::chain::{ChainEvidence, Movement, RefusedLog, SentLog};
use super::super::super::outgoing::Outgoing;
use super::super::{audit, moved_out};
use super::env::{CUSTOMER, OWN, REFUSED, faultless};
use super::{base, finds};

/// Indexes in `orders`.
const PAYOUT: usize = 0;
const REFUSED_PAYOUT: usize = 1;
const WITHDRAWAL: usize = 2;
/// Amount of the payout, in base units.
const PAYOUT_UNITS: i64 = 5_000_001;
/// An address that must receive nothing.
const ELSEWHERE: Address = Address::repeat_byte(0xee);

fn read(evidence: &mut Evidence, order: usize) -> &mut Value {
    evidence.orders[order].creation.read.as_mut().unwrap()
}

fn refund(evidence: &mut Evidence) -> &mut Outgoing {
    &mut evidence.stories[7].refunds[0]
}

/// Index of the on-chain log of the transfer of this amount to this address.
fn sent(evidence: &mut Evidence, to: Address, units: i64) -> usize {
    base(evidence).sent.iter().position(|log| log.to == to && log.units == units).unwrap()
}

fn payout(evidence: &mut Evidence) -> &mut SentLog {
    let index = sent(evidence, CUSTOMER, PAYOUT_UNITS);
    &mut base(evidence).sent[index]
}

/// The first event in the feed with this value.
fn event<'a>(evidence: &'a mut Evidence, key: &str, value: &str) -> &'a mut Value {
    evidence.feed.iter_mut().find(|event| event[key] == value).unwrap()
}

/// Index of the first posting with this value.
fn posting(evidence: &Evidence, key: &str, value: &str, kind: &str) -> usize {
    evidence.ledger.entries.iter().position(|entry| entry[key] == value && entry["kind"] == kind).unwrap()
}

#[test]
fn counts_outbound_transfers() {
    let counted: Vec<(String, usize)> = moved_out(&faultless()).into_iter().collect();
    let expected = [("payout", 1), ("refund", 5), ("transfer", 1), ("withdrawal", 1)];
    assert_eq!(counted, expected.map(|(kind, count)| (kind.to_owned(), count)));
    assert!(moved_out(&Evidence::default()).is_empty());
}

#[test]
fn finds_a_run_without_outbound_transfers() {
    finds("run", &["nothing was moved out"], |e| {
        e.orders.clear();
        e.stories.iter_mut().for_each(|story| story.refunds.clear());
        e.stories.retain(|story| !story.intent.behaviour.is_transfer());
    });
}

#[test]
fn finds_a_payout_that_was_sent_twice() {
    let twice = |evidence: &mut Evidence| {
        let again = SentLog { tx_hash: B256::repeat_byte(7), ..payout(evidence).clone() };
        let moved = *base(evidence).movements.iter().find(|moved| moved.units == again.units).unwrap();
        base(evidence).moved(Movement { tx_hash: again.tx_hash, ..moved });
        base(evidence).sent.push(again);
    };
    finds("po_1", &["matches no order"], twice);
    finds("base", &["holds 110.000002 USDC instead of 105.000001"], twice);
    // Also within the same transaction.
    let at_once = |evidence: &mut Evidence| {
        let again = payout(evidence).clone();
        base(evidence).sent.push(again);
    };
    finds("po_1", &["matches no order"], at_once);
    finds("base", &["was reported and never moved"], at_once);
}

#[test]
fn finds_a_lost_payout() {
    finds("po_1", &["is lost", "is not listed"], |e| {
        e.orders[PAYOUT].creation.read = None;
        e.listed_orders.retain(|listed| listed != "po_1");
    });
    let unsent = |evidence: &mut Evidence| {
        let index = sent(evidence, CUSTOMER, PAYOUT_UNITS);
        base(evidence).sent.remove(index);
    };
    finds("po_1", &["is not on-chain as reported"], unsent);
    finds("base", &["moved without an operation"], unsent);
    finds("po_1", &["must end sent and is \"pending\""], |e| read(e, PAYOUT)["status"] = json!("pending"));
    finds("po_1", &["is sent by transaction null"], |e| read(e, PAYOUT)["tx_hash"] = Value::Null);
    finds("request po_1", &["was never answered"], |e| e.orders[PAYOUT].creation.made = None);
    finds("wd_3", &["no"], |e| e.orders[WITHDRAWAL].creation.trouble = Some("no".to_owned()));
}

#[test]
fn finds_an_order_that_was_created_twice_or_changed() {
    finds("po_9", &["no request was answered with it"], |e| e.listed_orders.push("po_9".to_owned()));
    finds("wd_3", &["is listed twice"], |e| e.listed_orders.push("wd_3".to_owned()));
    finds("rf_99", &["no request was answered with it"], |e| {
        super::read(e, 1)["refunds"].as_array_mut().unwrap().push(json!({"refund_id": "rf_99"}));
    });
    finds("po_1", &["the same request was answered"], |e| {
        e.orders[PAYOUT].creation.replayed.as_mut().unwrap()["id"] = json!("po_9");
    });
    finds("po_1", &["is now refused"], |e| e.orders[PAYOUT].creation.replayed = None);
    finds("po_1", &["was acknowledged as"], |e| e.orders[PAYOUT].units += 1);
    finds("wd_3", &["was acknowledged as"], |e| e.orders[WITHDRAWAL].to = CUSTOMER);
    finds("rf_8", &["was acknowledged with address"], |e| {
        refund(e).creation.read.as_mut().unwrap()["address"] = json!(OWN.to_string());
    });
    finds("rf_8", &["answers several"], |e| e.stories[8].refunds[0] = e.stories[7].refunds[0].clone());
}

#[test]
fn finds_money_sent_to_a_wrong_recipient() {
    finds("po_1", &["is not on-chain as reported"], |e| payout(e).to = OWN);
    // A refused transfer must not be sent, and no other transfer may fail.
    finds("po_2", &["must end failed"], |e| read(e, REFUSED_PAYOUT)["status"] = json!("sent"));
    let log = |to| RefusedLog { to, why: "outbound transfer 3: no".to_owned() };
    for to in [Some(CUSTOMER), None] {
        finds("base", &["outbound transfer 3: no on-chain"], |e| base(e).refused.push(log(to)));
    }
    let mut refused = faultless();
    base(&mut refused).refused.push(log(Some(REFUSED)));
    assert!(audit(&refused).is_empty());
    // A vault that pays without an operation.
    finds("base", &["moved without an operation", "dfdf"], |e| {
        let stolen = *base(e).movements.iter().find(|moved| moved.to == OWN).unwrap();
        base(e).moved(Movement { units: 1, ..stolen });
    });
    // The address of a single refund holds more than the refund.
    finds("rf_8", &["holds 0.000007 USDC instead of 100.00"], |e| {
        let to = refund(e).to;
        base(e).balances.insert((Token::Usdc, to), 7);
    });
    // A transfer to a customer that was not forwarded.
    finds("pay_13", &["is not on-chain as reported"], |e| {
        base(e).sent.retain(|log| log.units != 100_000_000 || log.to != CUSTOMER);
    });
}

#[test]
fn finds_a_wrong_recipient_that_the_service_reports_consistently() {
    // The chain, the answer, the reads and the events agree with each other; only the request differs.
    fn divert(evidence: &mut Evidence, to: Address, units: i64) {
        let index = sent(evidence, to, units);
        let ChainEvidence { sent, movements, balances, .. } = base(evidence);
        let log = &mut sent[index];
        log.to = ELSEWHERE;
        let moved = movements.iter_mut().find(|moved| moved.tx_hash == log.tx_hash && moved.from == log.vault);
        let moved = moved.unwrap();
        moved.to = ELSEWHERE;
        *balances.get_mut(&(moved.token, to)).unwrap() -= moved.units;
        *balances.entry((moved.token, ELSEWHERE)).or_default() += moved.units;
    }
    fn say(evidence: &mut Evidence, id: &str, field: &str) {
        let of_it = |event: &&mut Value| event["payment_id"] == id || event["refund_id"] == id;
        for event in evidence.feed.iter_mut().filter(of_it) {
            event[field] = json!(ELSEWHERE.to_string());
        }
        for delivery in &mut evidence.deliveries {
            if let Some(event) = evidence.feed.iter().find(|event| event["event_id"] == delivery.webhook_id.as_str()) {
                delivery.body = event.to_string();
            }
        }
    }
    fn answer(out: &mut Outgoing) {
        for record in [&mut out.creation.made, &mut out.creation.read, &mut out.creation.replayed] {
            record.as_mut().unwrap()["address"] = json!(ELSEWHERE.to_string());
        }
    }

    let went = format!("went to {ELSEWHERE}");
    finds("pay_13", &["must be sent on to 0x", "matches no order", "is not on-chain as reported", &went], |e| {
        divert(e, CUSTOMER, 100_000_000);
        super::read(e, 13)["address"] = json!(ELSEWHERE.to_string());
    });
    let payout = ["was acknowledged as", "must go to 0x", "matches no order", "is not on-chain as reported"];
    finds("po_1", &payout, |e| {
        divert(e, CUSTOMER, PAYOUT_UNITS);
        answer(&mut e.orders[PAYOUT]);
        say(e, "po_1", "address");
    });
    let refunded = ["was acknowledged as", "must go to 0x", "matches no order", "holds 0.00 USDC instead of"];
    finds("rf_8", &refunded, |e| {
        let Outgoing { to, units, .. } = *refund(e);
        divert(e, to, units);
        answer(refund(e));
        say(e, "rf_8", "refund_address");
    });
    // The wrong address only in an event.
    finds("wd_3", &["must go to 0x"], |e| say(e, "wd_3", "address"));
}

#[test]
fn finds_a_missing_or_contradictory_event() {
    finds("rf_8", &["announced [] instead of [\"refund.sent\"]"], |e| {
        e.feed.retain(|event| event["refund_id"] != "rf_8");
    });
    finds("pay_9", &["numbered [1, 2, 3, 4, 6]", "is not in the feed"], |e| {
        e.feed.retain(|event| event["refund_id"] != "rf_9");
    });
    finds("po_1", &[r#"["payout.pending", "payout.sent", "payout.failed"]"#], |e| {
        let mut failed = event(e, "event", "payout.sent").clone();
        (failed["event"], failed["sequence"]) = (json!("payout.failed"), json!(3));
        e.feed.push(failed);
    });
    finds("wd_3", &["announced {"], |e| event(e, "event", "withdraw.sent")["tx_hash"] = json!("0x1"));
    finds("rf_8", &["announced {"], |e| event(e, "refund_id", "rf_8")["refund_amount"] = json!("99.00"));
    finds("rf_99", &["no request asked for"], |e| {
        e.feed.push(json!({"event": "refund.sent", "payment_id": "pay_1", "refund_id": "rf_99", "sequence": 5}));
    });
}

#[test]
fn finds_wrong_balances_and_postings() {
    for (field, what) in [("available", "available instead of"), ("pending", "pending"), ("reserved", "reserved")] {
        finds("base", &["shows -0.01 USDC", what], |e| e.ledger.balances[0][field] = json!("-0.01"));
    }
    finds("base", &["shows no balance of USDT"], |e| e.ledger.balances.truncate(1));
    let twice = |evidence: &mut Evidence| {
        let again = evidence.ledger.entries[posting(evidence, "reference", "wd_3", "sent")].clone();
        evidence.ledger.entries.push(again);
    };
    finds("wd_3", &["is posted as"], twice);
    finds("base", &["on in_flight instead of 0.00"], twice);
    let kept = |evidence: &mut Evidence| {
        let index = posting(evidence, "reference", "po_2", "returned");
        evidence.ledger.entries.remove(index);
    };
    finds("po_2", &["is posted as"], kept);
    finds("base", &["5.000002 USDC on in_flight", "on psp instead of"], kept);
    finds("base", &["on payment and suspense instead of"], |e| {
        let index = posting(e, "subject", "pay_1", "received");
        e.ledger.entries.remove(index);
    });
    finds("base", &["on treasury instead of"], |e| e.ledger.entries.retain(|entry| entry["kind"] != "fee"));
    finds("pay_1", &["in a token that has no balance"], |e| e.ledger.entries[0]["token_address"] = json!("0x1"));
    finds("payferry reconcile", &["1 differ"], |e| e.ledger.complaint = Some("1 differ".to_owned()));
}
