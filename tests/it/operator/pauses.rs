//! `/ops/pauses`: paused work waits, and continues afterwards.

use payferry_journal::chain::Role;
use payferry_runtime::observe::{ActorKind, NodeView};

use crate::http::customers::paid_out::{balances, balances_on, payee, payout, register, withdrawal};
use crate::prelude::*;

/// Passes of the settler: many more than a settlement needs that is not paused.
const PASSES: u64 = 20;

/// Waits until the settler of this chain has checked its work [`PASSES`] times.
async fn settler_passes(service: &ServiceFixture, chain: &str) {
    let messages = || {
        let root = service.app.state.system.tree().root;
        let is_settler = |node: &&NodeView| node.kind == ActorKind::Settler && node.name == chain;
        root.children.iter().find(is_settler).unwrap().figures.messages
    };
    let before = messages();
    until("the settler passes", async || (messages() >= before + PASSES).then_some(())).await;
}

async fn initiate(service: &ServiceFixture, chain: &str) -> Reply {
    service.app.initiate(&json!({ "chain": chain })).await
}

async fn status(service: &ServiceFixture, payment: &Reply) -> Value {
    service.app.get(&payment.path()).await["status"].clone()
}

#[tokio::test]
async fn paused_chain_accepts_nothing_new_and_settles_after_the_pause() {
    let service = ServiceFixture::start_with_chains().await;
    let before = initiate(&service, "base").await;
    insta::assert_json_snapshot!("pause_set", service.hold("chain:base").await.redacted());

    let refused = initiate(&service, "base").await;
    refused.assert_problem(503, "chain_paused");
    assert_eq!(refused.header("retry-after"), Some("60"));
    let best = initiate(&service, "best").await;
    let candidates = best["chain_candidates"].as_array().unwrap();
    let base = candidates.iter().find(|candidate| candidate["chain"] == "base").unwrap();
    assert_has(base, json!({ "eligible": false, "reason": "paused by the operator" }));
    assert_ne!(best["chain"], "base");

    // The chain is still watched, and the other chains are not affected.
    service.app.pay(&before, "10").await;
    service.app.payment_when(&before, "confirmed").await;
    service.app.pay(&best, "10").await;
    service.app.payment_when(&best, "settled").await;
    settler_passes(&service, "base").await;
    assert_eq!(status(&service, &before).await, "confirmed");

    assert!(service.lift("chain:base").await);
    assert!(!service.lift("chain:base").await);
    service.app.payment_when(&before, "settled").await;
    assert_eq!(initiate(&service, "base").await.status, 201);

    for chain in ["base", "polygon", "arbitrum"] {
        service.hold(&format!("chain:{chain}")).await;
    }
    initiate(&service, "best").await.assert_problem(503, "chain_paused");
}

#[tokio::test]
async fn settlement_pause_affects_only_its_chain() {
    let service = ServiceFixture::start_with_chains().await;
    service.hold("settlement:polygon").await;
    let (held, free) = (initiate(&service, "polygon").await, initiate(&service, "base").await);
    for payment in [&held, &free] {
        service.app.pay(payment, "10").await;
    }
    service.app.payment_when(&free, "settled").await;
    service.app.payment_when(&held, "confirmed").await;
    service.hold("settlement").await;
    service.lift("settlement:polygon").await;
    settler_passes(&service, "polygon").await;
    assert_eq!(status(&service, &held).await, "confirmed", "everything is paused now");
    assert_eq!(balances_on(&service.app, "polygon").await, ["0.00", "9.90", "0.00"], "it is pending");
    assert_eq!(balances(&service.app).await, ["9.90", "0.00", "0.00"], "it is available on Base");
    service.lift("settlement").await;
    service.app.payment_when(&held, "settled").await;
    assert_eq!(balances_on(&service.app, "polygon").await, ["9.90", "0.00", "0.00"]);
    // An outbound pause affects only outbound transfers.
    let system = service.app.state.system.clone();
    let held = |chain| {
        let settler = system.chains().settler(chain).unwrap();
        [settler.is_paused(Role::Settle), settler.is_paused(Role::Send)]
    };
    service.hold("sending:base").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, true], [false, false]]);
    service.hold("sending").await;
    service.lift("sending:base").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, true], [false, true]]);
    assert!(system.pauses().is_outbound_held(Chain::Base) && !system.pauses().is_settlement_held(Chain::Base));
    service.lift("sending").await;
    service.hold("chain:polygon").await;
    assert_eq!([held(Chain::Base), held(Chain::Polygon)], [[false, false], [true, true]]);
}

#[tokio::test]
async fn refund_waits_for_an_outbound_pause_and_is_refused_for_a_psp_pause() {
    let service = ServiceFixture::start_with_chains().await;
    let made = initiate(&service, "base").await;
    service.app.pay(&made, "4").await;
    service.app.payment_when(&made, "mismatched").await;
    let path = made.path();
    let refund = async |amount: &str| {
        let body = json!({ "amount": amount, "address": format!("0x{}", "ad".repeat(20)) });
        service.app.post(&format!("{path}/refunds"), &body).await
    };
    let scope = format!("psp:{}", service.app.psp_id);
    service.hold(&scope).await;
    refund("1").await.assert_problem(409, "psp_paused");
    let resolve = json!({ "action": "refund", "address": format!("0x{}", "ad".repeat(20)) });
    service.app.post(&format!("{path}/resolve"), &resolve).await.assert_problem(409, "psp_paused");
    service.lift(&scope).await;

    service.hold("sending:base").await;
    assert_eq!(refund("1").await.status, 202);
    settler_passes(&service, "base").await;
    assert_eq!(service.app.get(&path).await["refunds"][0]["status"], "pending");
    service.lift("sending:base").await;
    service.app.get_until(&path, |reply| reply["refunds"][0]["status"] == "sent").await;
    assert_eq!(service.app.get(&path).await["refunds"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn paused_psp_starts_nothing_and_running_payments_continue() {
    let service = ServiceFixture::start_with_chains().await;
    let running = initiate(&service, "base").await;
    let scope = format!("psp:{}", service.app.psp_id);
    service.hold(&scope).await;
    initiate(&service, "base").await.assert_problem(409, "psp_paused");
    service.app.pay(&running, "10").await;
    service.app.payment_when(&running, "settled").await;

    let customer = payee(&service.app).await;
    register(&service.app).await;
    let (to_customer, withdrawal) = (payout(&customer, "1"), withdrawal("1"));
    let money_out = [("/payouts", &to_customer), ("/withdrawals", &withdrawal), ("/transfers", &to_customer)];
    for (path, body) in money_out {
        service.app.post(path, body).await.assert_problem(409, "psp_paused");
        assert_eq!(service.app.get(path).await["total"], 0, "{path}");
    }
    assert_eq!(balances(&service.app).await, ["9.90", "0.00", "0.00"]);

    let stuck = service.get("/ops/stuck?kind=paused").await.json;
    let item = &stuck["kinds"][0]["items"][0];
    assert_has(item, json!({ "id": scope, "reason": "to see what happens", "psp_id": service.app.psp_id.to_string() }));
    service.lift(&scope).await;
    assert_eq!(initiate(&service, "base").await.status, 201);
    for (path, body) in money_out {
        let asked = service.app.post(path, body).await;
        assert_eq!(asked.status, 202, "{path}: {}", asked.text());
    }
    assert_eq!(service.get("/ops/stuck?kind=paused").await["kinds"], json!([]));

    let log = service.get(&format!("/ops/audit?subject={scope}")).await.json;
    let notified = column(&log["entries"], "action");
    assert_eq!(notified, ["pause.set", "pause.lifted"]);
    assert_eq!(log["entries"][0]["psp_id"], service.app.psp_id.to_string());
}

#[tokio::test]
async fn pauses_are_listed_and_invalid_ones_refused() {
    let service = ServiceFixture::start().await;
    assert_eq!(service.get("/ops/pauses").await.json, json!({ "total": 0, "next_cursor": null, "pauses": [] }));
    for (body, faults) in [
        (json!({}), "scope: required, reason: required"),
        (json!({ "scope": "payouts", "reason": " " }), "scope: unknown_value, reason: empty"),
        (json!({ "scope": 7, "reason": "x", "until": "later" }), "until: unknown_field, scope: wrong_type"),
    ] {
        assert_eq!(service.post("/ops/pauses", &body).await.faults(), faults, "{body}");
    }
    let nobody = json!({ "scope": "psp:psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "reason": "x" });
    service.post("/ops/pauses", &nobody).await.assert_problem(404, "psp_not_found");
    service.post("/ops/pauses/payouts/lift", &json!({})).await.assert_problem(400, "invalid_parameters");

    let first = service.hold("sending").await.json;
    let again = service.post("/ops/pauses", &json!({ "scope": "sending", "reason": "another" })).await.json;
    assert_eq!(again, first, "an existing pause does not change");
    assert_eq!(service.get("/ops/pauses").await["pauses"], json!([first]));
    service.lift("sending").await;
    // Pauses are set and lifted on the page.
    service
        .form("/ops/view/pauses", &[("scope", "everything"), ("reason", "x")])
        .await
        .ok(422)
        .assert_shows(&["settlement:&lt;chain&gt;"]);
    let forged = [("scope", "chain:base"), ("reason", "<b>forged</b>"), ("confirm", "true")];
    assert_eq!(service.form("/ops/view/pauses", &forged).await.status, 303);
    service.get("/ops/view/pauses").await.assert_shows(&["&lt;b&gt;forged&lt;/b&gt;"]);
    assert!(service.get("/ops/view/stuck").await.text().contains("chain:base"));
    assert_eq!(service.form("/ops/view/pauses/chain:base/lift", &super::SIGNED).await.status, 303);
    assert!(service.get("/ops/view/pauses").await.text().contains("Nothing is paused."));
}
