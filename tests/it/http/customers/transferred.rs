//! Transfers to customers: a payer pays, and the whole amount is forwarded to the customer's wallet.

use payferry_domain::payment::Decision;

use super::paid_out::{assert_unsuitable, balances, kinds, payee, payout, unsuitable_payees};
use super::*;

const TRANSFERS: &str = "/transfers";

async fn when(app: &TestApp, made: &Reply, status: &str) -> Reply {
    app.when(&format!("{TRANSFERS}/{}", made.id()), status).await
}

/// Names of the announced events, once there are this many.
async fn notified(app: &TestApp, made: &Reply, count: usize) -> Vec<Value> {
    let path = format!("/api/v1{}/webhooks", made.path());
    let log = app.get_until(&path, |log| log["deliveries"].as_array().unwrap().len() >= count).await;
    column(&log["deliveries"], "event")
}

async fn to_customer(app: &TestApp) -> u64 {
    balance(app, Chain::Base, Token::Usdc, OTHER_WALLET).await
}

#[tokio::test]
async fn whole_amount_is_forwarded_to_the_customer() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let body = with(&payout(&customer, "4.5"), &json!({ "reference": "rent", "metadata": { "month": 5 } }));
    let made = app.post_keyed("t1", TRANSFERS, &body).await.ok(202);
    insta::assert_json_snapshot!("transfer_made", made.redacted());
    app.post_keyed("t1", "/api/v1/transfers", &body).await.assert_replays(&made);
    assert_eq!(app.get(&format!("{TRANSFERS}/{}", made.id())).await.json, made.json, "it is the whole record");

    app.pay(&made, "4.5").await;
    let settled = when(&app, &made, "settled").await;
    insta::assert_json_snapshot!("transfer_settled", settled.redacted());
    assert_eq!(to_customer(&app).await, 4_500_000);
    assert_eq!(balances(&app).await, ["0.00", "0.00", "0.00"], "it belongs to the customer, not to the PSP");
    assert_eq!(notified(&app, &made, 1).await, ["transfer.settled"]);
    let id = made.id();
    let expected = [["received", "external", "payment", "4.50"], ["delivered", "payment", "external", "4.50"]];
    assert_eq!(kinds(&app, id).await, expected);

    // It is found only by its own id, and only by its own PSP.
    assert_eq!(app.get(&format!("/payments/{id}")).await["payment_id"], id);
    assert_eq!(app.get(&format!("/payments/{}", id.replacen("tr_", "pay_", 1))).await.status, 404);
    assert_eq!(app.get("/payments").await["total"], 0);
    let list = app.get("/transfers?reference=rent").await;
    assert_has(&list, json!({ "total": 1, "transfers/0/payment_id": id, "transfers/0/address": settled["address"] }));
    assert_eq!(app.get("/transfers?reference=other").await["total"], 0);
    let key = app.stranger().await;
    for path in [format!("/transfers/{id}"), format!("/payments/{id}"), format!("/payments/{id}/webhooks")] {
        assert_eq!(app.get_as(&key, &path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn underpaid_transfer_waits_and_surplus_is_refunded() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let made = app.post(TRANSFERS, &payout(&customer, "4")).await;
    app.pay(&made, "1").await;
    when(&app, &made, "underpaid").await;
    app.pay(&made, "5").await;
    when(&app, &made, "settled").await;
    assert_eq!(to_customer(&app).await, 4_000_000);
    let id = made.id();
    let path = format!("/payments/{id}/refunds");
    app.post(&path, &json!({ "amount": "2.01", "address": WALLET })).await.assert_problem(409, "refund_too_large");
    app.post(&path, &json!({ "address": WALLET })).await.assert(202, json!({ "payment_id": id, "amount": "2.00" }));
    let names = notified(&app, &made, 4).await;
    assert_eq!(names, ["transfer.underpaid", "transfer.mismatched", "transfer.settled", "refund.sent"]);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, WALLET).await, 2_000_000);
}

#[tokio::test]
async fn transfers_to_unscreened_wallets_and_wallets_in_review_are_refused() {
    for (decision, status, code) in
        [(None, 503, "screening_unavailable"), (Some(Decision::Review), 409, "wallet_in_review")]
    {
        let app = TestApp::start_with_screener(&FixedScreener::new(decision)).await;
        let body = payout(&payee(&app).await, "4");
        for _ in 0..2 {
            // The refusal is not stored for the key: each request is screened again.
            let refused = app.post_keyed("t1", TRANSFERS, &body).await;
            refused.assert_problem(status, code);
            let is_temporary = refused.header("retry-after").is_some();
            assert_eq!((is_temporary, refused.header("idempotent-replayed")), (status == 503, None), "{code}");
        }
        assert_eq!(app.get(TRANSFERS).await["total"], 0, "{code}: no payment was requested");
    }
}

#[tokio::test]
async fn transfer_rejected_by_the_token_is_announced_and_retried() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    blacklist(&app, Chain::Base, OTHER_WALLET, true).await;
    let made = app.post(TRANSFERS, &payout(&customer, "4")).await;
    app.pay(&made, "4").await;
    let failed = when(&app, &made, "failed").await;
    assert_eq!(failed["labels"], json!(["SETTLEMENT_FAILED"]));
    blacklist(&app, Chain::Base, OTHER_WALLET, false).await;
    app.post(&format!("{}/resolve", made.path()), &json!({ "action": "retry_settlement" })).await.ok(202);
    when(&app, &made, "settled").await;
    assert_eq!(to_customer(&app).await, 4_000_000);
    assert_eq!(notified(&app, &made, 2).await, ["transfer.failed", "transfer.settled"]);
}

#[tokio::test]
async fn transfer_to_a_no_longer_approved_customer_is_refunded() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let made = app.post(TRANSFERS, &payout(&customer, "4")).await;
    deactivate(&app, &customer).await;
    app.pay(&made, "4").await;
    when(&app, &made, "failed").await;
    app.post(&format!("{}/refunds", made.path()), &json!({ "address": WALLET })).await.ok(202);
    assert_eq!(notified(&app, &made, 2).await, ["transfer.failed", "refund.sent"], "one failure is announced once");
    assert_eq!(to_customer(&app).await, 0);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, WALLET).await, 4_000_000);
}

#[tokio::test]
async fn invalid_transfers_are_refused_before_payment() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let refused = async |body: &Value, status: u16, code: &str| {
        app.post(TRANSFERS, body).await.assert_problem(status, code);
    };
    refused(&payout("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "1"), 404, "customer_not_found").await;
    refused(&json!({ "amount": "0", "currency": "EUR", "chain": "solana" }), 422, "validation_failed").await;
    let bare = add(&app, &individual()).await;
    refused(&payout(&bare, "1"), 409, "customer_not_cleared").await;
    clear(&app, &bare).await;
    refused(&payout(&bare, "1"), 409, "customer_without_wallet").await;
    // A wallet of the sandbox with money that screening blocks.
    let outlaw = payferry::sandbox::Accounts::known().sanctioned.address().to_string();
    let tainted = add(&app, &with(&individual(), &json!({ "email": "eve@example.com" }))).await;
    set_details(&app, &tainted, &json!({ "wallet_address": outlaw.to_lowercase() })).await;
    clear(&app, &tainted).await;
    refused(&payout(&tainted, "1"), 409, "wallet_blocked").await;
    deactivate(&app, &customer).await;
    refused(&payout(&customer, "1"), 409, "customer_inactive").await;
    for (customer, _, what) in unsuitable_payees(&app).await {
        assert_unsuitable(&app.post(TRANSFERS, &payout(&customer, "1")).await, what);
    }
    assert_eq!(app.get(TRANSFERS).await["total"], 0);
}
