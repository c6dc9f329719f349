//! Refunds above the limit: held, listed, approved or rejected by the operator.

use payferry_journal::psps::PspPolicies;

use super::reply;
use crate::http::mismatches::set_policies;
use crate::prelude::*;

const ADA: &str = "0x000000000000000000000000000000000000ada4";

/// A settled payment of a PSP that may refund 3.00 a day to other addresses than the payer's.
async fn limited() -> (ServiceFixture, Reply) {
    let service = ServiceFixture::start_with_chains().await;
    let limit = Some("3".parse().unwrap());
    set_policies(&service.app, &PspPolicies { refund_elsewhere_daily_max: limit, ..PspPolicies::default() }).await;
    let made = service.app.paid("10", "settled").await;
    (service, made)
}

fn refund(amount: &str) -> Value {
    json!({ "amount": amount, "address": ADA })
}

fn decision(refund: &Reply, decision: &str) -> Value {
    json!({ "refund_id": refund["refund_id"], "decision": decision, "reason": "the PSP called back" })
}

async fn balances(app: &TestApp) -> [String; 2] {
    let read = app.get("/balances").await;
    let line = read["balances"].as_array().unwrap().iter().find(|line| line["chain"] == "base").unwrap();
    ["available", "reserved"].map(|name| line[name].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn refund_above_the_limit_waits_and_is_sent_once_after_approval() {
    let (service, made) = limited().await;
    let app = &service.app;
    let refunds = format!("{}/refunds", made.path());
    app.refunded(&made, &refund("3")).await;
    let asked = app.post_keyed("r1", &refunds, &refund("4")).await;
    insta::assert_json_snapshot!("refund_pending_approval", asked.redacted());
    app.post_keyed("r1", &refunds, &refund("4")).await.assert_replays(&asked);
    assert_eq!(balances(app).await, ["2.90", "4.00"], "the amount is reserved");
    let one = format!("{refunds}/{}", asked.string("refund_id"));
    app.get_until(&one, |read| read["kyt_verdict"] == "allow")
        .await
        .assert(200, json!({ "status": "pending_approval" }));
    assert!(has_label(&app.get(&made.path()).await.json, "REFUND_APPROVAL"));

    let ops = format!("/ops/payments/{}", made.id());
    let path = format!("{ops}/approve_refund");
    let item = service.stuck("kind=refund_approval").await["items"][0].clone();
    assert_has(&item, json!({ "payment_id": made.id(), "can": [{ "action": "approve_refund", "path": path }] }));
    assert!(item["reason"].as_str().unwrap().starts_with("4.00 USDC on base to 0x"), "{item:#}");
    let line = service.get(&ops).await["refunds"][0].clone();
    assert_has(
        &line,
        json!({ "refund_id": asked["refund_id"], "awaits_approval": true, "verdict": "allow", "may": [] }),
    );
    let faults = service.post(&path, &json!({ "decision": "allow", "refund_id": "x" })).await.faults_sorted();
    assert_eq!(faults, "decision: unknown_value, reason: required, refund_id: invalid_id");
    let nobody = json!({ "refund_id": "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "decision": "approve", "reason": "x" });
    service.post(&path, &nobody).await.assert_problem(404, "refund_not_found");
    reply(service.bare(Method::POST, &path).json(&nobody)).await.assert_problem(401, "operator_token_missing");

    let approve = decision(&asked, "approve");
    let decided = service.post(&path, &approve).await.ok(200);
    let last = decided["history"].as_array().unwrap().last().unwrap();
    assert_has(last, json!({ "actor_kind": "operator", "action": "payment.refund_approved", "detail/amount": "4.00" }));
    app.when(&one, "sent").await;
    service.post(&path, &approve).await.assert_problem(409, "not_awaiting_approval");
    assert_eq!(balances(app).await, ["2.90", "0.00"]);
    assert_eq!(balance(app, Chain::Base, Token::Usdc, ADA).await, 7_000_000);
    assert_eq!(service.stuck("kind=refund_approval").await["items"][0], Value::Null);
    assert!(!has_label(&app.get(&made.path()).await.json, "REFUND_APPROVAL"));
}

#[tokio::test]
async fn rejected_refund_fails_with_its_reason_and_returns_the_amount() {
    let (service, made) = limited().await;
    let app = &service.app;
    let refunds = format!("{}/refunds", made.path());
    let resolved =
        app.post(&format!("{}/resolve", made.path()), &with(&refund("5"), &json!({ "action": "refund" }))).await;
    resolved.assert(202, json!({ "refunds/0/status": "pending_approval" }));
    let id = resolved["refunds"][0]["refund_id"].as_str().unwrap();
    assert_eq!(balances(app).await, ["4.90", "5.00"]);

    app.get_until(&format!("{refunds}/{id}"), |read| read["kyt_verdict"] == "allow").await;
    let view = format!("/ops/view/payments/{}", made.id());
    let decide = format!("{view}/decide");
    assert!(service.get(&view).await.text().contains(&decide), "the payment's page links to the form");
    assert!(service.get("/ops/view/stuck").await.text().contains(&decide), "the attention page links to the form");
    service
        .get(&decide)
        .await
        .ok(200)
        .assert_shows(&["Refund of 5.00 above the limit", &format!("id=\"approve-{id}\"")]);
    let pairs = [("refund_id", id), ("decision", "reject"), ("reason", "the PSP knows nothing of it")];
    let path = format!("{view}/approve_refund");
    service.form(&path, &pairs).await.ok(422).assert_shows(&["<code>confirm</code>"]);
    let rejected = service.form(&path, &[pairs.as_slice(), &[("confirm", "true")]].concat()).await;
    assert_eq!(
        (rejected.status.as_u16(), rejected.header("location")),
        (303, Some(&*format!("{decide}?done=decided")))
    );
    let failed = app.when(&format!("{refunds}/{id}"), "failed").await;
    insta::assert_json_snapshot!("refund_rejected", failed.redacted());
    assert_eq!(balances(app).await, ["9.90", "0.00"]);
    let log = app.get(&format!("{}/webhooks", made.path())).await;
    let told = &log["deliveries"].as_array().unwrap().last().unwrap()["payload"];
    let expected = json!({ "event": "refund.failed", "refund_id": id, "refund_failure_reason": "not_approved" });
    assert_has(told, expected);
    // The rejected refund does not count for the day.
    app.refunded(&made, &refund("3")).await;
    assert_eq!(balance(app, Chain::Base, Token::Usdc, ADA).await, 3_000_000);
}
