//! Transfers to customers: a payer pays, and the whole amount is forwarded to the customer's wallet.

use std::sync::Arc;

use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest};
use payferry_domain::payment::{Decision, Verdict};
use payferry_domain::{Chain, Token};
use payferry_runtime::clock::Clock;

use super::paid_out::{assert_unsuitable, balances, kinds, payee, row, unsuitable_payees};
use super::*;
use crate::app::TestConfig;
use crate::chainside::{balance, blacklist};

const TRANSFERS: &str = "/transfers";

fn transfer(customer: &str, amount: &str) -> Value {
    json!({ "customer_id": customer, "amount": amount, "currency": "USDC", "chain": "base" })
}

async fn when(app: &TestApp, made: &Reply, status: &str) -> Reply {
    let path = format!("{TRANSFERS}/{}", made.json["payment_id"].as_str().unwrap());
    let ask = async |app: &TestApp| Some(app.get(&path).await).filter(|reply| reply.json["status"] == status);
    app.until(&format!("it is {status}"), ask).await
}

/// Names of the announced events, once there are this many.
async fn notified(app: &TestApp, made: &Reply, count: usize) -> Vec<String> {
    let path = format!("/api/v1/payments/{}/webhooks", made.json["payment_id"].as_str().unwrap());
    let ask = async |app: &TestApp| {
        let log = app.get(&path).await;
        let names = log.json["deliveries"].as_array().unwrap().iter();
        let names: Vec<String> = names.map(|entry| entry["event"].as_str().unwrap().to_owned()).collect();
        (names.len() >= count).then_some(names)
    };
    app.until("the events are announced", ask).await
}

async fn to_customer(app: &TestApp) -> u64 {
    balance(app, Chain::Base, Token::Usdc, OTHER_WALLET).await
}

#[tokio::test]
async fn whole_amount_is_forwarded_to_the_customer() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let body = with(&transfer(&customer, "4.5"), &json!({ "reference": "rent", "metadata": { "month": 5 } }));
    let made = app.request(Method::POST, TRANSFERS).idempotency_key("t1").json(&body).send().await;
    assert_eq!(made.status, 202, "{}", made.text());
    insta::assert_json_snapshot!("transfer_made", made.redacted());
    let again = app.request(Method::POST, "/api/v1/transfers").idempotency_key("t1").json(&body).send().await;
    assert_eq!((again.header("idempotent-replayed"), &again.bytes), (Some("true"), &made.bytes));

    app.pay(&made, "4.5").await;
    let settled = when(&app, &made, "settled").await;
    insta::assert_json_snapshot!("transfer_settled", settled.redacted());
    assert_eq!(to_customer(&app).await, 4_500_000);
    assert_eq!(balances(&app).await, ["0.00", "0.00", "0.00"], "it belongs to the customer, not to the PSP");
    assert_eq!(notified(&app, &made, 1).await, ["transfer.settled"]);
    let id = made.json["payment_id"].as_str().unwrap();
    let expected = [row("received", "external", "payment", "4.50"), row("delivered", "payment", "external", "4.50")];
    assert_eq!(kinds(&app, id).await, expected);

    // It is found only by its own id, and only by its own PSP.
    assert_eq!(app.get(&format!("/payments/{id}")).await.json["payment_id"], id);
    assert_eq!(app.get(&format!("/payments/{}", id.replacen("tr_", "pay_", 1))).await.status, 404);
    assert_eq!(app.get("/payments").await.json["total"], 0);
    let list = app.get("/transfers?reference=rent").await;
    assert_eq!((&list.json["total"], &list.json["transfers"][0]["payment_id"]), (&json!(1), &json!(id)));
    assert_eq!(list.json["transfers"][0]["address"], settled.json["address"]);
    assert_eq!(app.get("/transfers?reference=other").await.json["total"], 0);
    let other = app.add_psp().await;
    let key = app.add_key(other, &[payferry_domain::KeyScope::Full]).await;
    for path in [format!("/transfers/{id}"), format!("/payments/{id}"), format!("/payments/{id}/webhooks")] {
        assert_eq!(app.request(Method::GET, &path).key(&key).send().await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn underpaid_transfer_waits_and_surplus_is_refunded() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let made = app.post(TRANSFERS, &transfer(&customer, "4")).await;
    app.pay(&made, "1").await;
    when(&app, &made, "underpaid").await;
    app.pay(&made, "5").await;
    when(&app, &made, "settled").await;
    assert_eq!(to_customer(&app).await, 4_000_000);
    let id = made.json["payment_id"].as_str().unwrap();
    let path = format!("/payments/{id}/refunds");
    let too_much = app.post(&path, &json!({ "amount": "2.01", "address": WALLET })).await;
    too_much.assert_problem(409, "refund_too_large");
    let asked = app.post(&path, &json!({ "address": WALLET })).await;
    assert_eq!((asked.status.as_u16(), &asked.json["payment_id"]), (202, &json!(id)), "{}", asked.text());
    assert_eq!(asked.json["amount"], "2.00");
    let names = notified(&app, &made, 4).await;
    assert_eq!(names, ["transfer.underpaid", "transfer.mismatched", "transfer.settled", "refund.sent"]);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, WALLET).await, 2_000_000);
}

/// A screener that always fails.
struct FailingScreener;

#[async_trait::async_trait]
impl KytScreener for FailingScreener {
    #[allow(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn name(&self) -> &str {
        "speechless"
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Err(KytError("it is speechless".to_owned()))
    }
}

#[tokio::test]
async fn unscreened_wallet_can_be_requested_again() {
    let screener: Arc<dyn KytScreener> = Arc::new(FailingScreener);
    let app = TestApp::start_with(TestConfig { chains: true, screener: Some(screener), ..TestConfig::default() }).await;
    let body = transfer(&payee(&app).await, "4");
    for _ in 0..2 {
        // The refusal is not stored for the key: each request is screened again.
        let refused = app.request(Method::POST, TRANSFERS).idempotency_key("t1").json(&body).send().await;
        refused.assert_problem(503, "screening_unavailable");
        assert!(refused.header("retry-after").is_some() && refused.header("idempotent-replayed").is_none());
    }
    assert_eq!(app.get(TRANSFERS).await.json["total"], 0, "no payment was requested");
}

/// A screener that puts everything into review.
struct ReviewAllScreener;

#[async_trait::async_trait]
impl KytScreener for ReviewAllScreener {
    #[allow(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn name(&self) -> &str {
        "doubtful"
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Ok(Verdict {
            decision: Decision::Review,
            by_operator: false,
            risk_level: Some("medium".to_owned()),
            score: Some(55),
            flags: vec!["mixer".to_owned()],
            provider: "doubtful".to_owned(),
            provider_ref: None,
            list_version: None,
            plain_sender: None,
            checked_at: Clock::default().now(),
        })
    }
}

#[tokio::test]
async fn transfer_to_a_wallet_in_review_is_refused() {
    let screener: Arc<dyn KytScreener> = Arc::new(ReviewAllScreener);
    let app = TestApp::start_with(TestConfig { chains: true, screener: Some(screener), ..TestConfig::default() }).await;
    let body = transfer(&payee(&app).await, "4");
    for _ in 0..2 {
        let refused = app.request(Method::POST, TRANSFERS).idempotency_key("t1").json(&body).send().await;
        refused.assert_problem(409, "wallet_in_review");
        assert_eq!(refused.header("idempotent-replayed"), None);
    }
    assert_eq!(app.get(TRANSFERS).await.json["total"], 0);
}

#[tokio::test]
async fn transfer_rejected_by_the_token_is_announced_and_retried() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    blacklist(&app, Chain::Base, OTHER_WALLET, true).await;
    let made = app.post(TRANSFERS, &transfer(&customer, "4")).await;
    app.pay(&made, "4").await;
    let failed = when(&app, &made, "failed").await;
    assert_eq!(failed.json["labels"], json!(["SETTLEMENT_FAILED"]));
    blacklist(&app, Chain::Base, OTHER_WALLET, false).await;
    let id = made.json["payment_id"].as_str().unwrap();
    let again = app.post(&format!("/payments/{id}/resolve"), &json!({ "action": "retry_settlement" })).await;
    assert_eq!(again.status, 202, "{}", again.text());
    when(&app, &made, "settled").await;
    assert_eq!(to_customer(&app).await, 4_000_000);
    assert_eq!(notified(&app, &made, 2).await, ["transfer.failed", "transfer.settled"]);
}

#[tokio::test]
async fn transfer_to_a_no_longer_approved_customer_is_refunded() {
    let app = TestApp::start_with_chains().await;
    let customer = payee(&app).await;
    let made = app.post(TRANSFERS, &transfer(&customer, "4")).await;
    deactivate(&app, &customer).await;
    app.pay(&made, "4").await;
    when(&app, &made, "failed").await;
    let id = made.json["payment_id"].as_str().unwrap();
    let refund = app.post(&format!("/payments/{id}/refunds"), &json!({ "address": WALLET })).await;
    assert_eq!(refund.status, 202, "{}", refund.text());
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
    refused(&transfer("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "1"), 404, "customer_not_found").await;
    refused(&json!({ "amount": "0", "currency": "EUR", "chain": "solana" }), 422, "validation_failed").await;
    let bare = add(&app, &individual()).await;
    refused(&transfer(&bare, "1"), 409, "customer_not_cleared").await;
    clear(&app, &bare).await;
    refused(&transfer(&bare, "1"), 409, "customer_without_wallet").await;
    // A wallet of the sandbox with money that screening blocks.
    let outlaw = payferry::sandbox::Accounts::known().sanctioned.address().to_string();
    let tainted = add(&app, &with(&individual(), &json!({ "email": "eve@example.com" }))).await;
    set_details(&app, &tainted, &json!({ "wallet_address": outlaw.to_lowercase() })).await;
    clear(&app, &tainted).await;
    refused(&transfer(&tainted, "1"), 409, "wallet_blocked").await;
    deactivate(&app, &customer).await;
    refused(&transfer(&customer, "1"), 409, "customer_inactive").await;
    for (customer, _, what) in unsuitable_payees(&app).await {
        assert_unsuitable(&app.post(TRANSFERS, &transfer(&customer, "1")).await, what);
    }
    assert_eq!(app.get(TRANSFERS).await.json["total"], 0);
}
