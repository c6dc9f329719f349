//! `POST /payments/{id}/resolve`: accepting received amounts, and retrying settlements.

use serde_json::{Value, json};

use crate::app::{Reply, TestApp};
use crate::chainside::{balance, blacklist};
use crate::http::customers::paid_out::balances;
use payferry_domain::{Chain, Token};

const ADA: &str = "0x000000000000000000000000000000000000ada2";

fn resolve(payment: &Reply) -> String {
    format!("/payments/{}/resolve", payment.json["payment_id"].as_str().unwrap())
}

#[tokio::test]
async fn underpayment_is_accepted_if_the_expected_amount_matches() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let path = resolve(&made);
    let accept = |expected: Value| json!({ "action": "accept", "expected_received": expected });
    app.post(&path, &accept(json!("6"))).await.assert_problem(409, "payment_not_mismatched");
    app.pay(&made, "6").await;
    app.payment_when(&made, "mismatched").await;
    let moved = app.post(&path, &accept(json!("5.999999"))).await;
    insta::assert_json_snapshot!("resolve_received_moved", moved.redacted());

    for (body, faults) in [
        (json!({}), vec!["action: required"]),
        (json!({ "action": "keep" }), vec!["action: unknown_value"]),
        (json!({ "action": 1, "amount": 2 }), vec!["action: wrong_type", "amount: wrong_type"]),
        (json!({ "action": "accept", "amount": "5" }), vec!["amount: not_applicable"]),
        (json!({ "action": "accept", "expected_received": 6 }), vec!["expected_received: wrong_type"]),
        (
            json!({ "action": "retry_settlement", "address": ADA, "expected_received": "6" }),
            vec!["address: not_applicable", "expected_received: not_applicable"],
        ),
    ] {
        let refused = app.post(&path, &body).await;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.faults(), faults, "{body}");
    }
    app.post(&path, &json!({ "action": "retry_settlement" })).await.assert_problem(409, "settlement_not_failed");

    let call = || app.request(axum::http::Method::POST, &path).idempotency_key("a").json(&accept(json!("6.00")));
    let accepted = call().send().await;
    assert_eq!((accepted.status.as_u16(), &accepted.json["status"]), (200, &json!("confirmed")), "{}", accepted.text());
    assert_eq!(call().send().await.bytes, accepted.bytes, "the same answer again");
    let settled = app.payment_when(&made, "settled").await;
    let settlement = &settled.json["settlement"];
    assert_eq!((&settlement["psp_amount"], &settlement["treasury_fee"]), (&json!("5.94"), &json!("0.06")));
    app.post(&path, &json!({ "action": "accept" })).await.assert_problem(409, "payment_not_mismatched");
}

#[tokio::test]
async fn failed_settlement_is_retried_or_refunded_whole() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let treasury = app.env().chain(Chain::Base).spec().treasury.to_string();
    blacklist(&app, Chain::Base, &treasury, true).await;
    let (made, given_up) = (app.add_payment(&merchant).await, app.add_payment(&merchant).await);
    let failed = async |payment: &Reply| {
        app.pay(payment, "10").await;
        let path = format!("/payments/{}", payment.json["payment_id"].as_str().unwrap());
        let labelled = async |app: &TestApp| {
            let read = app.get(&path).await;
            (read.json["labels"] == json!(["SETTLEMENT_FAILED"])).then_some(read)
        };
        app.until("the settlement has failed", labelled).await
    };
    assert_eq!(failed(&made).await.json["status"], "confirmed");
    assert_eq!(balances(&app).await, ["0.00", "9.90", "0.00"], "it may still be settled");
    failed(&given_up).await;
    assert_eq!(balances(&app).await, ["0.00", "19.80", "0.00"]);

    let part = json!({ "action": "refund", "amount": "1", "address": ADA });
    app.post(&resolve(&given_up), &part).await.assert_problem(409, "refund_must_be_all");
    let all = app.post(&resolve(&given_up), &json!({ "action": "refund", "address": ADA })).await;
    assert_eq!((all.status.as_u16(), &all.json["refunds"][0]["amount"]), (202, &json!("10.00")), "{}", all.text());
    let ended = app.payment_when(&given_up, "failed").await;
    assert_eq!(ended.json["failure_reason"], "settlement_failed");
    assert_eq!(balances(&app).await, ["0.00", "9.90", "0.00"], "the refunded amount is not expected any more");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);

    blacklist(&app, Chain::Base, &treasury, false).await;
    let retried = app.post(&resolve(&made), &json!({ "action": "retry_settlement" })).await;
    assert_eq!(retried.status, 202, "{}", retried.text());
    let settled = app.payment_when(&made, "settled").await;
    assert_eq!(settled.json["labels"], json!([]));
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, &treasury).await, 100_000);
}
