//! Injected faults of outbound transfers.

use alloy::primitives::{Address, B256};
use payferry_domain::Token;
use serde_json::{Value, json};

use super::super::super::evidence::{Evidence, Movement, RefusedLog, SentLog};
use super::super::super::outgoing::Outgoing;
use super::super::{audit, moved_out};
use super::env::{CUSTOMER, OWN, REFUSED, faultless};
use super::{base, found};

/// Indexes in `orders`.
const PAYOUT: usize = 0;
const REFUSED_PAYOUT: usize = 1;
const WITHDRAWAL: usize = 2;
/// An address that must receive nothing.
const ELSEWHERE: Address = Address::repeat_byte(0xee);

fn read(out: &mut Outgoing) -> &mut Value {
    out.read.as_mut().unwrap()
}

/// The refund `rf_8`.
fn refund(evidence: &mut Evidence) -> &mut Outgoing {
    &mut evidence.stories[7].refunds[0]
}

/// Index of the payout's on-chain log.
fn sent(evidence: &mut Evidence) -> usize {
    let sent = &base(evidence).sent;
    sent.iter().position(|log| log.to == CUSTOMER && log.units == 5_000_001).unwrap()
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
    let nothing = |evidence: &mut Evidence| {
        evidence.orders.clear();
        for story in &mut evidence.stories {
            story.refunds.clear();
        }
        evidence.stories.retain(|story| !story.intent.behaviour.is_transfer());
    };
    assert!(found("run", nothing).contains("nothing was moved out"));
}

#[test]
fn finds_a_payout_that_was_sent_twice() {
    let twice = |evidence: &mut Evidence| {
        let index = sent(evidence);
        let mut again = base(evidence).sent[index].clone();
        again.tx_hash = B256::repeat_byte(7);
        let mut moved = *base(evidence).movements.iter().find(|moved| moved.units == again.units).unwrap();
        moved.tx_hash = again.tx_hash;
        base(evidence).sent.push(again);
        base(evidence).moved(moved);
    };
    assert!(found("po_1", twice).contains("matches no order"));
    let said = found("base", twice);
    assert!(said.contains("holds 110.000002 USDC instead of 105.000001"), "{said}");
    // Also within the same transaction.
    let at_once = |evidence: &mut Evidence| {
        let index = sent(evidence);
        let again = base(evidence).sent[index].clone();
        base(evidence).sent.push(again);
    };
    assert!(found("po_1", at_once).contains("matches no order"));
    assert!(found("base", at_once).contains("was reported and never moved"));
}

#[test]
fn finds_a_lost_payout() {
    let forgotten = |evidence: &mut Evidence| {
        evidence.orders[PAYOUT].read = None;
        evidence.listed_orders.retain(|listed| listed != "po_1");
    };
    let said = found("po_1", forgotten);
    assert!(said.contains("is lost") && said.contains("is not listed"), "{said}");
    let unsent = |evidence: &mut Evidence| {
        let index = sent(evidence);
        base(evidence).sent.remove(index);
    };
    assert!(found("po_1", unsent).contains("is not on-chain as reported"));
    assert!(found("base", unsent).contains("moved without an operation"));
    let stuck = |evidence: &mut Evidence| read(&mut evidence.orders[PAYOUT])["status"] = json!("pending");
    assert!(found("po_1", stuck).contains("must end sent and is \"pending\""));
    let nowhere = |evidence: &mut Evidence| read(&mut evidence.orders[PAYOUT])["tx_hash"] = Value::Null;
    assert!(found("po_1", nowhere).contains("is sent by transaction null"));
    let unanswered = |evidence: &mut Evidence| evidence.orders[PAYOUT].made = None;
    assert!(found("request po_1", unanswered).contains("was never answered"));
    assert!(found("wd_3", |e| e.orders[WITHDRAWAL].trouble = Some("no".to_owned())).contains("no"));
}

#[test]
fn finds_an_order_that_was_created_twice_or_changed() {
    assert!(found("po_9", |e| e.listed_orders.push("po_9".to_owned())).contains("no request was answered with it"));
    assert!(found("wd_3", |e| e.listed_orders.push("wd_3".to_owned())).contains("is listed twice"));
    let invented = |evidence: &mut Evidence| {
        let refunds = evidence.stories[0].read.as_mut().unwrap()["refunds"].as_array_mut().unwrap();
        refunds.push(json!({"refund_id": "rf_99"}));
    };
    assert!(found("rf_99", invented).contains("no request was answered with it"));
    let again = |evidence: &mut Evidence| {
        evidence.orders[PAYOUT].replayed.as_mut().unwrap()["id"] = json!("po_9");
    };
    assert!(found("po_1", again).contains("the same request was answered"));
    assert!(found("po_1", |e| e.orders[PAYOUT].replayed = None).contains("is now refused"));
    assert!(found("po_1", |e| e.orders[PAYOUT].units += 1).contains("was acknowledged as"));
    assert!(found("wd_3", |e| e.orders[WITHDRAWAL].to = CUSTOMER).contains("was acknowledged as"));
    let moved = |evidence: &mut Evidence| read(refund(evidence))["address"] = json!(OWN.to_string());
    assert!(found("rf_8", moved).contains("was acknowledged with address"));
    assert!(found("rf_8", |e| e.stories[8].refunds[0] = e.stories[7].refunds[0].clone()).contains("answers several"));
}

#[test]
fn finds_money_sent_to_a_wrong_recipient() {
    let elsewhere = |evidence: &mut Evidence| {
        let index = sent(evidence);
        base(evidence).sent[index].to = OWN;
    };
    assert!(found("po_1", elsewhere).contains("is not on-chain as reported"));
    // A refused transfer must not be sent, and no other transfer may fail.
    let gone = |evidence: &mut Evidence| {
        read(&mut evidence.orders[REFUSED_PAYOUT])["status"] = json!("sent");
    };
    assert!(found("po_2", gone).contains("must end failed"));
    let log = |to| RefusedLog { to, why: "outbound transfer 3: no".to_owned() };
    assert!(found("base", |e| base(e).refused.push(log(Some(CUSTOMER)))).contains("outbound transfer 3: no on-chain"));
    assert!(found("base", |e| base(e).refused.push(log(None))).contains("outbound transfer 3: no on-chain"));
    let mut refused = faultless();
    base(&mut refused).refused.push(log(Some(REFUSED)));
    assert!(audit(&refused).is_empty());
    // A vault that pays without an operation.
    let stolen = |evidence: &mut Evidence| {
        let mut moved = *base(evidence).movements.iter().find(|moved| moved.to == OWN).unwrap();
        moved.units = 1;
        base(evidence).moved(moved);
    };
    let said = found("base", stolen);
    assert!(said.contains("moved without an operation") && said.contains("dfdf"), "{said}");
    // The address of a single refund holds more than the refund.
    let more = |evidence: &mut Evidence| {
        let to = refund(evidence).to;
        base(evidence).balances.insert((Token::Usdc, to), 7);
    };
    assert!(found("rf_8", more).contains("holds 0.000007 USDC instead of 100.00"));
    // A transfer to a customer that was not forwarded.
    let kept =
        |evidence: &mut Evidence| base(evidence).sent.retain(|log| log.units != 100_000_000 || log.to != CUSTOMER);
    assert!(found("pay_13", kept).contains("is not on-chain as reported"));
}

#[test]
fn finds_a_wrong_recipient_that_the_service_reports_consistently() {
    // The chain, the answer, the reads and the events agree with each other; only the request differs.
    fn divert(evidence: &mut Evidence, mut log: SentLog) {
        let is_its = |moved: &&Movement| moved.tx_hash == log.tx_hash && moved.from == log.vault;
        let moved = *base(evidence).movements.iter().find(is_its).unwrap();
        let meant = log.to;
        let chain = base(evidence);
        let index = chain.sent.iter().position(|sent| *sent == log).unwrap();
        log.to = ELSEWHERE;
        chain.sent[index] = log;
        chain.movements.retain(|other| *other != moved);
        *chain.balances.get_mut(&(moved.token, meant)).unwrap() -= moved.units;
        *chain.balances.entry((moved.token, ELSEWHERE)).or_default() += moved.units;
        chain.movements.push(Movement { to: ELSEWHERE, ..moved });
    }
    fn sent_to(evidence: &mut Evidence, to: Address, units: i64) -> SentLog {
        base(evidence).sent.iter().find(|log| log.to == to && log.units == units).unwrap().clone()
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
        for record in [&mut out.made, &mut out.read, &mut out.replayed] {
            record.as_mut().unwrap()["address"] = json!(ELSEWHERE.to_string());
        }
    }

    let transfer = |evidence: &mut Evidence| {
        let log = sent_to(evidence, CUSTOMER, 100_000_000);
        divert(evidence, log);
        evidence.stories[12].read.as_mut().unwrap()["address"] = json!(ELSEWHERE.to_string());
    };
    let said = found("pay_13", transfer);
    for part in ["must be sent on to 0x", "matches no order", "is not on-chain as reported"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains(&format!("went to {ELSEWHERE}")), "{said}");
    let payout = |evidence: &mut Evidence| {
        let log = sent_to(evidence, CUSTOMER, 5_000_001);
        divert(evidence, log);
        answer(&mut evidence.orders[PAYOUT]);
        say(evidence, "po_1", "address");
    };
    let said = found("po_1", payout);
    for part in ["was acknowledged as", "must go to 0x", "matches no order", "is not on-chain as reported"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let refunded = |evidence: &mut Evidence| {
        let (to, units) = (refund(evidence).to, refund(evidence).units);
        let log = sent_to(evidence, to, units);
        divert(evidence, log);
        answer(refund(evidence));
        say(evidence, "rf_8", "refund_address");
    };
    let said = found("rf_8", refunded);
    for part in ["was acknowledged as", "must go to 0x", "matches no order", "holds 0.00 USDC instead of"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The wrong address only in an event.
    assert!(found("wd_3", |evidence| say(evidence, "wd_3", "address")).contains("must go to 0x"));
}

#[test]
fn finds_a_missing_or_contradictory_event() {
    let missing = |evidence: &mut Evidence| evidence.feed.retain(|event| event["refund_id"] != "rf_8");
    let said = found("rf_8", missing);
    assert!(said.contains("announced [] instead of [\"refund.sent\"]"), "{said}");
    let gap = |evidence: &mut Evidence| evidence.feed.retain(|event| event["refund_id"] != "rf_9");
    let said = found("pay_9", gap);
    assert!(said.contains("numbered [1, 2, 3, 4, 6]") && said.contains("is not in the feed"), "{said}");
    let both = |evidence: &mut Evidence| {
        let sent = evidence.feed.iter().find(|event| event["event"] == "payout.sent").unwrap();
        let mut failed = sent.clone();
        (failed["event"], failed["sequence"]) = (json!("payout.failed"), json!(3));
        evidence.feed.push(failed);
    };
    let said = found("po_1", both);
    assert!(said.contains(r#"["payout.pending", "payout.sent", "payout.failed"]"#), "{said}");
    let other = |evidence: &mut Evidence| {
        let sent = evidence.feed.iter_mut().find(|event| event["event"] == "withdraw.sent").unwrap();
        sent["tx_hash"] = json!("0x1");
    };
    assert!(found("wd_3", other).contains("announced {"));
    let less = |evidence: &mut Evidence| {
        let sent = evidence.feed.iter_mut().find(|event| event["refund_id"] == "rf_8").unwrap();
        sent["refund_amount"] = json!("99.00");
    };
    assert!(found("rf_8", less).contains("announced {"));
    let strange = |evidence: &mut Evidence| {
        evidence.feed.push(json!({"event": "refund.sent", "payment_id": "pay_1", "refund_id": "rf_99", "sequence": 5}));
    };
    assert!(found("rf_99", strange).contains("no request asked for"));
}

#[test]
fn finds_wrong_balances_and_postings() {
    for (field, what) in [("available", "available instead of"), ("pending", "pending"), ("reserved", "reserved")] {
        let off = |evidence: &mut Evidence| evidence.books.balances[0][field] = json!("-0.01");
        let said = found("base", off);
        assert!(said.contains("shows -0.01 USDC") && said.contains(what), "{said}");
    }
    assert!(found("base", |e| e.books.balances.truncate(1)).contains("shows no balance of USDT"));
    let posting = |evidence: &mut Evidence, id: &str, kind: &str| {
        let is_its = |entry: &Value| entry["reference"] == id && entry["kind"] == kind;
        evidence.books.entries.iter().position(is_its).unwrap()
    };
    let twice = |evidence: &mut Evidence| {
        let index = posting(evidence, "wd_3", "sent");
        let again = evidence.books.entries[index].clone();
        evidence.books.entries.push(again);
    };
    assert!(found("wd_3", twice).contains("is posted as"));
    assert!(found("base", twice).contains("on in_flight instead of 0.00"));
    let kept = |evidence: &mut Evidence| {
        let index = posting(evidence, "po_2", "returned");
        evidence.books.entries.remove(index);
    };
    assert!(found("po_2", kept).contains("is posted as"));
    let said = found("base", kept);
    assert!(said.contains("5.000002 USDC on in_flight") && said.contains("on psp instead of"), "{said}");
    let unpaid = |evidence: &mut Evidence| {
        let index = evidence.books.entries.iter().position(|entry| entry["kind"] == "received").unwrap();
        evidence.books.entries.remove(index);
    };
    assert!(found("base", unpaid).contains("on payment and suspense instead of"));
    let fee = |evidence: &mut Evidence| evidence.books.entries.retain(|entry| entry["kind"] != "fee");
    assert!(found("base", fee).contains("on treasury instead of"));
    let unknown = |evidence: &mut Evidence| evidence.books.entries[0]["token_address"] = json!("0x1");
    assert!(found("pay_1", unknown).contains("in a token that has no balance"));
    let complains = |evidence: &mut Evidence| evidence.books.complaint = Some("1 differ".to_owned());
    assert!(found("payferry reconcile", complains).contains("1 differ"));
}
