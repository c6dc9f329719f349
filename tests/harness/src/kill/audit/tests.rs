//! The audit accepts a run without faults and finds each injected fault.

mod env;
mod money_out;

use std::time::Duration;

use alloy::primitives::Address;
use payferry_domain::{Chain, Token};
use serde_json::{Value, json};

use super::super::creation::Creation;
use super::super::evidence::Evidence;
use super::super::evidence::chain::ChainEvidence;
use super::super::report::Finding;
use super::audit;
use env::faultless;

/// Injects a fault. The audit's findings about `about` must contain each of `says`.
fn finds(about: &str, says: &[&str], plant: impl FnOnce(&mut Evidence)) {
    let mut evidence = faultless();
    plant(&mut evidence);
    let findings = audit(&evidence);
    let said: Vec<&str> = findings.iter().filter(|f| f.about == about).map(|finding| finding.what.as_str()).collect();
    let said = said.join("; ");
    for part in says {
        assert!(said.contains(part), "no finding `{part}` about {about}, but {said}: {findings:?}");
    }
}

fn payment(evidence: &mut Evidence, number: usize) -> &mut Creation {
    &mut evidence.stories[number - 1].creation
}

/// The payment as read at the end.
fn read(evidence: &mut Evidence, number: usize) -> &mut Value {
    payment(evidence, number).read.as_mut().unwrap()
}

fn transfers(evidence: &mut Evidence, number: usize) -> &mut Vec<Value> {
    read(evidence, number)["transfers"].as_array_mut().unwrap()
}

fn base(evidence: &mut Evidence) -> &mut ChainEvidence {
    evidence.chains.get_mut(&Chain::Base).unwrap()
}

#[test]
fn accepts_a_run_without_faults() {
    assert_eq!(audit(&faultless()), Vec::<Finding>::new());
}

#[test]
fn finds_a_lost_payment() {
    finds("pay_1", &["is lost", "not listed"], |e| {
        payment(e, 1).read = None;
        e.listed.retain(|listed| listed != "pay_1");
    });
    finds("pay_1", &["was acknowledged with amount"], |e| read(e, 1)["amount"] = json!("99.00"));
}

#[test]
fn finds_a_payment_that_was_created_twice() {
    finds("pay_66", &["no request was answered with it"], |e| e.listed.push("pay_66".to_owned()));
    finds("pay_1", &["the same request was answered"], |e| {
        payment(e, 1).replayed.as_mut().unwrap()["payment_id"] = json!("pay_66");
    });
    finds("pay_1", &["is now refused"], |e| payment(e, 1).replayed = None);
    finds("request key-1", &["never answered"], |e| payment(e, 1).made = None);
}

#[test]
fn finds_a_double_credit() {
    finds("pay_1", &["is listed 2 times"], |e| {
        let again = transfers(e, 1)[0].clone();
        transfers(e, 1).push(again);
    });
    finds("pay_1", &["is listed 2 times"], |e| {
        let elsewhere = transfers(e, 1)[0].clone();
        transfers(e, 7).push(elsewhere);
    });
    finds("pay_1", &["received"], |e| read(e, 1)["amount_received"] = json!("200.00"));
    finds("pay_1", &["is not listed"], |e| transfers(e, 1).clear());
    finds("pay_7", &["was not sent to it"], |e| {
        transfers(e, 7).push(json!({"tx_hash": "0xff", "chain": "base", "amount": "1.00"}));
    });
    finds("pay_1", &["is not listed"], |e| transfers(e, 1)[0]["status"] = json!("orphaned"));
    finds("pay_5", &["is listed as"], |e| transfers(e, 5)[0]["counted"] = json!(true));
}

#[test]
fn finds_a_double_settlement() {
    let again = |evidence: &mut Evidence, of: u8| {
        let mut log = base(evidence).settled[0].clone();
        log.vault = Address::repeat_byte(of);
        base(evidence).settled.push(log);
    };
    finds("pay_1", &["settled 2 times on-chain"], |e| again(e, 1));
    finds("pay_1", &["settled 0 times on-chain"], |e| {
        base(e).settled.retain(|log| log.vault != Address::repeat_byte(1));
    });
    finds("pay_1", &["was settled for"], |e| base(e).settled[0].psp_amount += 1);
    finds("pay_5", &["settled 1 times on-chain instead of 0"], |e| again(e, 5));
    finds("base", &["on-chain"], |e| base(e).failed.push("settlement 3: no".to_owned()));
}

#[test]
fn finds_a_missing_webhook() {
    finds("pay_1", &["was never delivered"], |e| e.deliveries.retain(|delivery| delivery.webhook_id != "evt_1_1"));
    finds("pay_1", &["never accepted"], |e| e.deliveries[0].answered = 500);
    let missing = ["numbered [1, 3, 4]", "never announced payin.confirmed", "is not in the feed"];
    finds("pay_1", &missing, |e| drop(e.feed.remove(1)));
}

#[test]
fn finds_two_bodies_under_one_webhook_id() {
    finds("pay_1", &["two bodies"], |e| {
        let mut again = e.deliveries[0].clone();
        again.body = again.body.replace("payment.confirmed", "payment.settled");
        e.deliveries.push(again);
    });
    finds("pay_1", &["is in the feed as"], |e| e.deliveries[0].body = e.deliveries[0].body.replace("pay_1", "pay_2"));
    finds("evt_9", &["does not verify"], |e| e.unverified.push("evt_9".to_owned()));
}

#[test]
fn finds_an_accepted_delivery_that_was_repeated_without_an_interruption() {
    let repeat = |e: &mut Evidence| {
        let mut again = e.deliveries[0].clone();
        again.at += Duration::from_secs(5);
        e.deliveries.push(again);
    };
    finds("pay_1", &["delivered again after 5.0 s"], repeat);
    finds("pay_1", &["delivered again after 5.0 s"], |e| {
        repeat(e);
        e.interrupted_at = vec![e.deliveries[0].at + Duration::from_secs(4)];
    });
    let mut evidence = faultless();
    repeat(&mut evidence);
    evidence.interrupted_at = vec![evidence.deliveries[0].at + Duration::from_millis(100)];
    assert_eq!(audit(&evidence), Vec::new());
}

#[test]
fn finds_an_event_that_was_published_twice() {
    finds("pay_1", &["announced payment.confirmed 2 times"], |e| {
        let mut event = e.feed[0].clone();
        (event["event_id"], event["sequence"]) = (json!("evt_new"), json!(5));
        e.feed.insert(4, event);
    });
}

#[test]
fn finds_wrong_balances() {
    finds("base", &["the PSP's vault holds"], |e| *base(e).vault.get_mut(&Token::Usdc).unwrap() -= 1);
    finds("base", &["the treasury holds"], |e| *base(e).treasury.get_mut(&Token::Usdc).unwrap() += 1);
    finds("pay_1", &["its wallet holds"], |e| {
        base(e).balances.insert((Token::Usdc, Address::repeat_byte(1)), 5);
    });
    finds("base", &["nonce is 5"], |e| base(e).nonces[1] = (5, 7));
}

#[test]
fn finds_a_payment_with_a_wrong_status() {
    finds("pay_1", &["Exact must end settled"], |e| read(e, 1)["status"] = json!("confirmed"));
    finds("pay_7", &["NeverPays must end failed (expired)"], |e| read(e, 7)["status"] = json!("pending"));
    finds("pay_1", &["is labelled LATE"], |e| read(e, 1)["labels"] = json!(["LATE"]));
    finds("pay_6", &["no"], |e| payment(e, 6).trouble = Some("no".to_owned()));
}
