//! `POST /payments/{id}/resolve`: accepting received amounts, and retrying settlements.

use crate::http::customers::paid_out::balances;
use crate::prelude::*;

const ADA: &str = "0x000000000000000000000000000000000000ada2";

fn resolve(payment: &Reply) -> String {
    format!("/payments/{}/resolve", payment.id())
}

#[tokio::test]
async fn underpayment_is_accepted_if_the_expected_amount_matches() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    let path = resolve(&made);
    let accept = |expected: Value| json!({ "action": "accept", "expected_received": expected });
    app.post(&path, &accept(json!("6"))).await.assert_problem(409, "payment_not_mismatched");
    app.pay(&made, "6").await;
    app.payment_when(&made, "mismatched").await;
    let moved = app.post(&path, &accept(json!("5.999999"))).await;
    insta::assert_json_snapshot!("resolve_received_moved", moved.redacted());

    let cases = [
        (json!({}), "action: required"),
        (json!({ "action": "keep" }), "action: unknown_value"),
        (json!({ "action": 1, "amount": 2 }), "action: wrong_type, amount: wrong_type"),
        (json!({ "action": "accept", "amount": "5" }), "amount: not_applicable"),
        (json!({ "action": "accept", "expected_received": 6 }), "expected_received: wrong_type"),
        (
            json!({ "action": "retry_settlement", "address": ADA, "expected_received": "6" }),
            "expected_received: not_applicable, address: not_applicable",
        ),
    ];
    assert_refused(&cases, async |body| app.post(&path, body).await).await;
    app.post(&path, &json!({ "action": "retry_settlement" })).await.assert_problem(409, "settlement_not_failed");

    let accepted = app.post_keyed("a", &path, &accept(json!("6.00"))).await;
    accepted.assert(200, json!({ "status": "confirmed" }));
    app.post_keyed("a", &path, &accept(json!("6.00"))).await.assert_replays(&accepted);
    let settled = app.payment_when(&made, "settled").await;
    let settlement = &settled["settlement"];
    assert_has(settlement, json!({ "psp_amount": "5.94", "treasury_fee": "0.06" }));
    app.post(&path, &json!({ "action": "accept" })).await.assert_problem(409, "payment_not_mismatched");
}

#[tokio::test]
async fn failed_settlement_is_retried_or_refunded_whole() {
    let app = TestApp::start_with_chains().await;
    let treasury = app.env().chain(Chain::Base).spec().treasury.to_string();
    blacklist(&app, Chain::Base, &treasury, true).await;
    let (made, given_up) = (app.add_payment().await, app.add_payment().await);
    let failed = async |payment: &Reply| {
        app.pay(payment, "10").await;
        app.get_until(&payment.path(), |read| read["labels"] == json!(["SETTLEMENT_FAILED"])).await
    };
    assert_eq!(failed(&made).await["status"], "confirmed");
    assert_eq!(balances(&app).await, ["0.00", "9.90", "0.00"], "it may still be settled");
    failed(&given_up).await;
    assert_eq!(balances(&app).await, ["0.00", "19.80", "0.00"]);

    let part = json!({ "action": "refund", "amount": "1", "address": ADA });
    app.post(&resolve(&given_up), &part).await.assert_problem(409, "refund_must_be_all");
    let all = app.post(&resolve(&given_up), &json!({ "action": "refund", "address": ADA })).await;
    all.assert(202, json!({ "refunds/0/amount": "10.00" }));
    let ended = app.payment_when(&given_up, "failed").await;
    assert_eq!(ended["failure_reason"], "settlement_failed");
    assert_eq!(balances(&app).await, ["0.00", "9.90", "0.00"], "the refunded amount is not expected any more");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);

    blacklist(&app, Chain::Base, &treasury, false).await;
    app.post(&resolve(&made), &json!({ "action": "retry_settlement" })).await.ok(202);
    let settled = app.payment_when(&made, "settled").await;
    assert_eq!(settled["labels"], json!([]));
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, &treasury).await, 100_000);
}
