//! `/ops/pauses`: paused work waits, and continues afterwards.

use std::time::Duration;

use payferry_domain::Chain;
use payferry_journal::chain::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Desk, reply};
use crate::app::Reply;
use crate::http::customers::paid_out::{balances, balances_on, payee, register};

/// Several times the duration of a settlement that is not paused.
const A_WHILE: Duration = Duration::from_secs(3);

async fn pause(desk: &Desk, scope: &str) -> Reply {
    let reply = desk.post("/ops/pauses", &json!({ "scope": scope, "reason": "to see what happens" })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

async fn lift(desk: &Desk, scope: &str) -> Value {
    desk.post(&format!("/ops/pauses/{scope}/lift"), &json!({})).await.json
}

async fn initiate(desk: &Desk, merchant: &str, chain: &str) -> Reply {
    let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": chain });
    desk.app.post("/payments/initiate", &body).await
}

async fn status(desk: &Desk, payment: &Reply) -> String {
    let path = format!("/payments/{}", payment.json["payment_id"].as_str().unwrap());
    desk.app.get(&path).await.json["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn paused_chain_accepts_nothing_new_and_settles_after_the_pause() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    let before = initiate(&desk, &merchant, "base").await;
    insta::assert_json_snapshot!("pause_set", pause(&desk, "chain:base").await.redacted());

    let refused = initiate(&desk, &merchant, "base").await;
    refused.assert_problem(503, "chain_paused");
    assert_eq!(refused.header("retry-after"), Some("60"));
    let best = initiate(&desk, &merchant, "best").await;
    let candidates = best.json["chain_candidates"].as_array().unwrap();
    let base = candidates.iter().find(|candidate| candidate["chain"] == "base").unwrap();
    assert_eq!((&base["eligible"], &base["reason"]), (&json!(false), &json!("paused by the operator")));
    assert_ne!(best.json["chain"], "base");

    // The chain is still watched, and the other chains are not affected.
    desk.app.pay(&before, "10").await;
    desk.app.payment_when(&before, "confirmed").await;
    desk.app.pay(&best, "10").await;
    desk.app.payment_when(&best, "settled").await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(status(&desk, &before).await, "confirmed");

    assert_eq!(lift(&desk, "chain:base").await, json!({ "scope": "chain:base", "was_paused": true }));
    assert_eq!(lift(&desk, "chain:base").await["was_paused"], false);
    desk.app.payment_when(&before, "settled").await;
    assert_eq!(initiate(&desk, &merchant, "base").await.status, 201);

    for chain in ["base", "polygon", "arbitrum"] {
        pause(&desk, &format!("chain:{chain}")).await;
    }
    initiate(&desk, &merchant, "best").await.assert_problem(503, "chain_paused");
    desk.stop().await;
}

#[tokio::test]
async fn settlement_pause_affects_only_its_chain() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    pause(&desk, "settlement:polygon").await;
    let (held, free) = (initiate(&desk, &merchant, "polygon").await, initiate(&desk, &merchant, "base").await);
    for payment in [&held, &free] {
        desk.app.pay(payment, "10").await;
    }
    desk.app.payment_when(&free, "settled").await;
    desk.app.payment_when(&held, "confirmed").await;
    pause(&desk, "settlement").await;
    lift(&desk, "settlement:polygon").await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(status(&desk, &held).await, "confirmed", "everything is paused now");
    assert_eq!(balances_on(&desk.app, "polygon").await, ["0.00", "9.90", "0.00"], "it is pending");
    assert_eq!(balances(&desk.app).await, ["9.90", "0.00", "0.00"], "it is available on Base");
    lift(&desk, "settlement").await;
    desk.app.payment_when(&held, "settled").await;
    assert_eq!(balances_on(&desk.app, "polygon").await, ["9.90", "0.00", "0.00"]);
    desk.stop().await;
}

#[tokio::test]
async fn sending_pause_affects_only_outbound_transfers() {
    let desk = Desk::start_with_chains().await;
    let system = desk.app.state.system.clone();
    let held = |chain| {
        let settler = system.chains().settler(chain).unwrap();
        [settler.is_paused(Role::Settle), settler.is_paused(Role::Send)]
    };
    pause(&desk, "sending:base").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, true], [false, false]]);
    pause(&desk, "sending").await;
    lift(&desk, "sending:base").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, true], [false, true]]);
    assert!(system.pauses().is_sending_held(Chain::Base) && !system.pauses().is_settlement_held(Chain::Base));
    lift(&desk, "sending").await;
    pause(&desk, "chain:polygon").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, false], [true, true]]);
    desk.stop().await;
}

#[tokio::test]
async fn refund_waits_for_a_sending_pause_and_is_refused_for_a_psp_pause() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    let made = initiate(&desk, &merchant, "base").await;
    desk.app.pay(&made, "4").await;
    desk.app.payment_when(&made, "mismatched").await;
    let path = format!("/payments/{}", made.json["payment_id"].as_str().unwrap());
    let refund = async |amount: &str| {
        let body = json!({ "amount": amount, "address": format!("0x{}", "ad".repeat(20)) });
        desk.app.post(&format!("{path}/refunds"), &body).await
    };
    let scope = format!("psp:{}", desk.app.psp_id);
    pause(&desk, &scope).await;
    refund("1").await.assert_problem(409, "psp_paused");
    let resolve = json!({ "action": "refund", "address": format!("0x{}", "ad".repeat(20)) });
    desk.app.post(&format!("{path}/resolve"), &resolve).await.assert_problem(409, "psp_paused");
    lift(&desk, &scope).await;

    pause(&desk, "sending:base").await;
    assert_eq!(refund("1").await.status, 202);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(desk.app.get(&path).await.json["refunds"][0]["status"], "pending");
    lift(&desk, "sending:base").await;
    let sent = async |desk: &Desk| (desk.app.get(&path).await.json["refunds"][0]["status"] == "sent").then_some(());
    desk.until("the refund is sent", sent).await;
    assert_eq!(desk.app.get(&path).await.json["refunds"].as_array().unwrap().len(), 1);
    desk.stop().await;
}

#[tokio::test]
async fn paused_psp_starts_nothing_and_running_payments_continue() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    let running = initiate(&desk, &merchant, "base").await;
    let scope = format!("psp:{}", desk.app.psp_id);
    pause(&desk, &scope).await;
    initiate(&desk, &merchant, "base").await.assert_problem(409, "psp_paused");
    desk.app.pay(&running, "10").await;
    desk.app.payment_when(&running, "settled").await;

    let customer = payee(&desk.app).await;
    register(&desk.app).await;
    let to_customer = json!({ "customer_id": customer, "amount": "1", "currency": "USDC", "chain": "base" });
    let withdrawal = json!({ "amount": "1", "currency": "USDC", "chain": "base" });
    let money_out = [("/payouts", &to_customer), ("/withdrawals", &withdrawal), ("/transfers", &to_customer)];
    for (path, body) in money_out {
        desk.app.post(path, body).await.assert_problem(409, "psp_paused");
        assert_eq!(desk.app.get(path).await.json["total"], 0, "{path}");
    }
    assert_eq!(balances(&desk.app).await, ["9.90", "0.00", "0.00"]);

    let stuck = desk.get("/ops/stuck?kind=paused").await.json;
    let item = &stuck["kinds"][0]["items"][0];
    assert_eq!((&item["id"], &item["reason"]), (&json!(scope), &json!("to see what happens")));
    assert_eq!(item["psp_id"], desk.app.psp_id.to_string());
    lift(&desk, &scope).await;
    assert_eq!(initiate(&desk, &merchant, "base").await.status, 201);
    for (path, body) in money_out {
        let asked = desk.app.post(path, body).await;
        assert_eq!(asked.status, 202, "{path}: {}", asked.text());
    }
    assert_eq!(desk.get("/ops/stuck?kind=paused").await.json["kinds"], json!([]));

    let log = desk.get(&format!("/ops/audit?subject={scope}")).await.json;
    let told: Vec<_> = log["entries"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(told, ["pause.set", "pause.lifted"]);
    assert_eq!(log["entries"][0]["psp_id"], desk.app.psp_id.to_string());
    desk.stop().await;
}

#[tokio::test]
async fn pauses_are_listed_and_invalid_ones_refused() {
    let desk = Desk::start().await;
    assert_eq!(desk.get("/ops/pauses").await.json, json!({ "pauses": [] }));
    for (body, faults) in [
        (json!({}), vec!["scope: required", "reason: required"]),
        (json!({ "scope": "payouts", "reason": " " }), vec!["scope: unknown_value", "reason: empty"]),
        (json!({ "scope": 7, "reason": "x", "until": "later" }), vec!["until: unknown_field", "scope: wrong_type"]),
    ] {
        assert_eq!(desk.post("/ops/pauses", &body).await.faults(), faults, "{body}");
    }
    let nobody = json!({ "scope": "psp:psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "reason": "x" });
    desk.post("/ops/pauses", &nobody).await.assert_problem(404, "psp_not_found");
    desk.post("/ops/pauses/payouts/lift", &json!({})).await.assert_problem(400, "invalid_parameters");

    let first = pause(&desk, "sending").await.json;
    let again = desk.post("/ops/pauses", &json!({ "scope": "sending", "reason": "another" })).await.json;
    assert_eq!(again, first, "an existing pause does not change");
    assert_eq!(desk.get("/ops/pauses").await.json["pauses"], json!([first]));
    desk.stop().await;
}

#[tokio::test]
async fn pauses_are_set_and_lifted_on_the_page() {
    let desk = Desk::start().await;
    let form = async |path: &str, body: &'static str| {
        let call = desk.call(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
        reply(call.body(body)).await
    };
    let refused = form("/ops/view/pauses", "scope=everything&reason=x").await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("settlement:&lt;chain&gt;"), "{}", refused.text());
    assert_eq!(form("/ops/view/pauses", "scope=chain%3Abase&reason=%3Cb%3Eforged%3C%2Fb%3E").await.status, 303);
    let page = desk.get("/ops/view/pauses").await;
    assert!(page.text().contains("&lt;b&gt;forged&lt;/b&gt;"), "{}", page.text());
    assert!(desk.get("/ops/view/stuck").await.text().contains("chain:base"));
    assert_eq!(form("/ops/view/pauses/chain:base/lift", "").await.status, 303);
    assert!(desk.get("/ops/view/pauses").await.text().contains("Nothing is paused."));
    desk.stop().await;
}
