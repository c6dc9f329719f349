//! The audit accepts a run without faults and finds each injected fault.

mod env;
mod money_out;

use alloy::primitives::Address;
use payferry_contracts::salt_of;
use payferry_domain::{Chain, Token};
use serde_json::{Value, json};

use super::super::evidence::{ChainEvidence, Evidence};
use super::super::report::Finding;
use super::audit;
use env::faultless;

/// Injects a fault. Returns the audit's findings about `about`.
fn found(about: &str, plant: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = faultless();
    plant(&mut evidence);
    let findings = audit(&evidence);
    assert!(!findings.is_empty(), "the audit found nothing");
    let said: Vec<&str> = findings.iter().filter(|f| f.about == about).map(|finding| finding.what.as_str()).collect();
    assert!(!said.is_empty(), "no finding about {about}: {findings:?}");
    said.join("; ")
}

fn read(evidence: &mut Evidence, index: usize) -> &mut Value {
    evidence.stories[index].read.as_mut().unwrap()
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
    let said = found("pay_1", |evidence| {
        evidence.stories[0].read = None;
        evidence.listed.retain(|listed| listed != "pay_1");
    });
    assert!(said.contains("is lost") && said.contains("not listed"), "{said}");
    let said = found("pay_1", |evidence| read(evidence, 0)["amount"] = json!("99.00"));
    assert!(said.contains("was acknowledged with amount"), "{said}");
}

#[test]
fn finds_a_payment_that_was_created_twice() {
    let said = found("pay_66", |evidence| evidence.listed.push("pay_66".to_owned()));
    assert!(said.contains("no request was answered with it"), "{said}");
    let said =
        found("pay_1", |evidence| evidence.stories[0].replayed.as_mut().unwrap()["payment_id"] = json!("pay_66"));
    assert!(said.contains("the same request was answered"), "{said}");
    let said = found("pay_1", |evidence| evidence.stories[0].replayed = None);
    assert!(said.contains("is now refused"), "{said}");
    let said = found("request key-1", |evidence| evidence.stories[0].made = None);
    assert!(said.contains("never answered"), "{said}");
}

#[test]
fn finds_a_double_credit() {
    let twice = |evidence: &mut Evidence| {
        let transfers = read(evidence, 0)["transfers"].as_array_mut().unwrap();
        transfers.push(transfers[0].clone());
    };
    assert!(found("pay_1", twice).contains("is listed 2 times"));
    let elsewhere = |evidence: &mut Evidence| {
        let transfer = read(evidence, 0)["transfers"][0].clone();
        read(evidence, 6)["transfers"].as_array_mut().unwrap().push(transfer);
    };
    assert!(found("pay_1", elsewhere).contains("is listed 2 times"));
    assert!(found("pay_1", |evidence| read(evidence, 0)["amount_received"] = json!("200.00")).contains("received"));
    assert!(found("pay_1", |evidence| read(evidence, 0)["transfers"] = json!([])).contains("is not listed"));
    let invented = |evidence: &mut Evidence| {
        read(evidence, 6)["transfers"] = json!([{"tx_hash": "0xff", "chain": "base", "amount": "1.00"}]);
    };
    assert!(found("pay_7", invented).contains("was not sent to it"));
    let orphaned = |evidence: &mut Evidence| read(evidence, 0)["transfers"][0]["status"] = json!("orphaned");
    assert!(found("pay_1", orphaned).contains("is not listed"));
    assert!(found("pay_5", |e| read(e, 4)["transfers"][0]["counted"] = json!(true)).contains("is listed as"));
}

#[test]
fn finds_a_double_settlement() {
    let twice = |evidence: &mut Evidence| {
        let again = base(evidence).settled[0].clone();
        base(evidence).settled.push(again);
    };
    assert!(found("pay_1", twice).contains("settled 2 times on-chain"));
    assert!(
        found("pay_1", |e| base(e).settled.retain(|log| log.vault_salt != salt_of("pay_1")))
            .contains("settled 0 times on-chain")
    );
    assert!(found("pay_1", |e| base(e).settled[0].psp_amount += 1).contains("was settled for"));
    let blocked = |evidence: &mut Evidence| {
        let mut log = base(evidence).settled[0].clone();
        log.vault_salt = salt_of("pay_5");
        base(evidence).settled.push(log);
    };
    assert!(found("pay_5", blocked).contains("settled 1 times on-chain instead of 0"));
    assert!(found("base", |e| base(e).failed.push("settlement 3: no".to_owned())).contains("on-chain"));
}

#[test]
fn finds_a_missing_webhook() {
    assert!(
        found("pay_1", |e| e.deliveries.retain(|delivery| delivery.webhook_id != "evt_1_1"))
            .contains("was never delivered")
    );
    assert!(found("pay_1", |e| e.deliveries[0].answered = 500).contains("never accepted"));
    let said = found("pay_1", |e| {
        e.feed.remove(1);
    });
    assert!(said.contains("numbered [1, 3, 4]") && said.contains("never announced payin.confirmed"), "{said}");
    assert!(said.contains("is not in the feed"), "{said}");
}

#[test]
fn finds_two_bodies_under_one_webhook_id() {
    let other = |evidence: &mut Evidence| {
        let mut again = evidence.deliveries[0].clone();
        again.body = again.body.replace("payment.confirmed", "payment.settled");
        evidence.deliveries.push(again);
    };
    assert!(found("pay_1", other).contains("two bodies"));
    let said = found("pay_1", |e| e.deliveries[0].body = e.deliveries[0].body.replace("pay_1", "pay_2"));
    assert!(said.contains("is in the feed as"), "{said}");
    assert!(found("evt_9", |e| e.unverified.push("evt_9".to_owned())).contains("does not verify"));
}

#[test]
fn finds_an_event_that_was_published_twice() {
    let again = |evidence: &mut Evidence| {
        let mut event = evidence.feed[0].clone();
        (event["event_id"], event["sequence"]) = (json!("evt_new"), json!(5));
        evidence.feed.insert(4, event);
    };
    let said = found("pay_1", again);
    assert!(said.contains("announced payment.confirmed 2 times"), "{said}");
}

#[test]
fn finds_wrong_balances() {
    assert!(found("base", |e| *base(e).vault.get_mut(&Token::Usdc).unwrap() -= 1).contains("the PSP's vault holds"));
    assert!(found("base", |e| *base(e).treasury.get_mut(&Token::Usdc).unwrap() += 1).contains("the treasury holds"));
    let left = |evidence: &mut Evidence| {
        base(evidence).balances.insert((Token::Usdc, Address::repeat_byte(1)), 5);
    };
    assert!(found("pay_1", left).contains("its wallet holds"));
    assert!(found("base", |e| base(e).nonces = (5, 7)).contains("nonce is 5"));
}

#[test]
fn finds_a_payment_with_a_wrong_status() {
    let said = found("pay_1", |evidence| read(evidence, 0)["status"] = json!("confirmed"));
    assert!(said.contains("Exact must end settled"), "{said}");
    let said = found("pay_7", |evidence| read(evidence, 6)["status"] = json!("pending"));
    assert!(said.contains("NeverPays must end failed (expired)"), "{said}");
    assert!(found("pay_1", |e| read(e, 0)["labels"] = json!(["LATE"])).contains("is labelled LATE"));
    assert!(found("pay_6", |e| e.stories[5].trouble = Some("no".to_owned())).contains("no"));
}
