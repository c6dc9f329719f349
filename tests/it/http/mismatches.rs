//! Transfers that do not fit: a month late, duplicate, an overpayment under a policy, in the wrong token or on the
//! wrong chain. Each is labelled, announced, and sent where the PSP wants it, on the chain as in the record.

use std::time::Duration;

use payferry::sandbox::Payer;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Chain, Token};
use payferry_entities::psps;
use payferry_journal::psps::PspPolicies;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Value, json};

use crate::app::{Reply, TestApp};
use crate::chainside::{balance, pay_from_contract, sleep};

const ADA: &str = "0x000000000000000000000000000000000000ada4";
const MONTH: Duration = Duration::from_secs(30 * 86_400 + 1);

fn path_of(payment: &Reply) -> String {
    format!("/payments/{}", payment.json["payment_id"].as_str().unwrap())
}

fn wallet_of(payment: &Reply) -> &str {
    payment.json["intermediary_wallet"].as_str().unwrap()
}

fn has_label(payment: &Reply, label: &str) -> bool {
    payment.json["labels"].as_array().unwrap().contains(&json!(label))
}

async fn payment_where(app: &TestApp, payment: &Reply, what: &str, holds: impl Fn(&Reply) -> bool) -> Reply {
    let ask = async |app: &TestApp| Some(app.get(&path_of(payment)).await).filter(|reply| holds(reply));
    app.until(what, ask).await
}

async fn events_of(app: &TestApp, payment: &Reply) -> Vec<String> {
    let log = app.get(&format!("{}/webhooks", path_of(payment))).await;
    let entries = log.json["deliveries"].as_array().unwrap().iter();
    entries.map(|entry| entry["event"].as_str().unwrap().to_owned()).collect()
}

/// Requests a refund and waits until it is sent.
async fn refunded(app: &TestApp, payment: &Reply, body: &Value) -> Value {
    let asked = app.post(&format!("{}/refunds", path_of(payment)), body).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    let path = format!("{}/refunds/{}", path_of(payment), asked.json["refund_id"].as_str().unwrap());
    let sent = async |app: &TestApp| Some(app.get(&path).await).filter(|reply| reply.json["status"] == "sent");
    app.until("the refund is sent", sent).await.json
}

pub(super) async fn set_policies(app: &TestApp, policies: &PspPolicies) {
    let settings = serde_json::to_string(policies).unwrap();
    psps::Entity::update_many()
        .col_expr(psps::Column::Settings, Expr::value(settings))
        .filter(psps::Column::Id.eq(app.psp_id.to_string()))
        .exec(app.writer())
        .await
        .unwrap();
    app.state.system.psps().forget(app.psp_id).await;
}

/// Creates a payment that ended without money more than a month ago.
async fn ended_long_ago(app: &TestApp, merchant: &str, cancelled: bool) -> Reply {
    let body =
        json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base", "expires_in": 60 });
    let made = app.post("/payments/initiate", &body).await;
    if cancelled {
        app.post(&format!("{}/cancel", path_of(&made)), &json!({})).await;
    } else {
        app.env().advance(90).await.unwrap();
    }
    app.payment_when(&made, "failed").await;
    made
}

#[tokio::test]
async fn transfer_a_month_after_the_end_is_late_and_refundable() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let expired = ended_long_ago(&app, &merchant, false).await;
    let cancelled = ended_long_ago(&app, &merchant, true).await;
    sleep(&app, MONTH).await;
    for payment in [&expired, &cancelled] {
        app.pay(payment, "10").await;
        let late = app.payment_when(payment, "mismatched").await;
        assert_eq!((&late.json["labels"], &late.json["failure_reason"]), (&json!(["LATE"]), &Value::Null));
        let notified = ["payment.failed", "payin.failed", "payment.mismatched", "payin.mismatched"];
        assert_eq!(events_of(&app, payment).await, notified);
        assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet_of(payment)).await, 10_000_000);
    }
    refunded(&app, &expired, &json!({ "address": ADA })).await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    assert_eq!(app.get(&path_of(&expired)).await.json["status"], "mismatched");
    let accepted = app.post(&format!("{}/resolve", path_of(&cancelled)), &json!({ "action": "accept" })).await;
    assert_eq!(accepted.json["status"], "confirmed", "{}", accepted.text());
    let settled = app.payment_when(&cancelled, "settled").await;
    assert_eq!(settled.json["settlement"]["psp_amount"], "9.90");
    for payment in [&expired, &cancelled] {
        assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet_of(payment)).await, 0);
    }
}

#[tokio::test]
async fn misdirected_transfer_after_a_month_is_refunded_in_place() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = ended_long_ago(&app, &merchant, false).await;
    sleep(&app, MONTH).await;
    let wallet = wallet_of(&made).parse().unwrap();
    let [base, polygon] = [Chain::Base, Chain::Polygon].map(|chain| app.env().chain(chain));
    base.transfer(Payer::Clean, Token::Usdt, wallet, "7".parse().unwrap()).await.unwrap();
    polygon.transfer(Payer::Clean, Token::Usdc, wallet, "5".parse().unwrap()).await.unwrap();
    let is_labelled = |reply: &Reply| has_label(reply, "WRONG_TOKEN") && has_label(reply, "WRONG_CHAIN");
    let held = payment_where(&app, &made, "both are labelled", is_labelled).await;
    assert_eq!((&held.json["status"], &held.json["amount_received"]), (&json!("failed"), &json!("0.00")));
    let notified = events_of(&app, &made).await;
    assert_eq!(notified[..2], ["payment.failed", "payin.failed"]);
    assert!(notified.len() > 2 && notified[2..].iter().all(|event| event.ends_with(".mismatched")), "{notified:?}");

    let usdt = base.spec().token_address(Token::Usdt).unwrap();
    let token = refunded(&app, &made, &json!({ "token_address": usdt, "address": ADA })).await;
    assert_eq!(
        (&token["currency"], &token["chain"], &token["amount"]),
        (&json!("USDT"), &json!("base"), &json!("7.00"))
    );
    let chain = refunded(&app, &made, &json!({ "chain": "polygon", "address": ADA })).await;
    assert_eq!(
        (&chain["currency"], &chain["chain"], &chain["amount"]),
        (&json!("USDC"), &json!("polygon"), &json!("5.00"))
    );
    assert_eq!(balance(&app, Chain::Base, Token::Usdt, ADA).await, 7_000_000);
    assert_eq!(balance(&app, Chain::Polygon, Token::Usdc, ADA).await, 5_000_000);
    assert_eq!(app.get(&path_of(&made)).await.json["status"], "failed");
}

#[tokio::test]
async fn second_payment_after_a_month_is_refundable() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    sleep(&app, MONTH).await;
    app.pay(&made, "10").await;
    let again = payment_where(&app, &made, "it is paid twice", |reply| has_label(reply, "EXCESS")).await;
    assert_eq!((&again.json["status"], &again.json["excess_received"]), (&json!("settled"), &json!("10.00")));
    let notified = [
        "payment.confirmed",
        "payin.confirmed",
        "payment.settled",
        "payin.settled",
        "payment.mismatched",
        "payin.mismatched",
    ];
    assert_eq!(events_of(&app, &made).await, notified);
    let refund = refunded(&app, &made, &json!({ "amount": "10", "address": ADA })).await;
    assert_eq!(refund["source"], "payment", "the second payment is still in the payment's wallet");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet_of(&made)).await, 0);
}

#[tokio::test]
async fn excess_is_refunded_automatically_to_accounts_only() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let policies =
        PspPolicies { overpayment: OverpaymentPolicy::RefundExcess, refund_to_sender: true, ..PspPolicies::default() };
    set_policies(&app, &policies).await;
    let (by_account, by_contract) = (app.add_payment(&merchant).await, app.add_payment(&merchant).await);
    app.pay(&by_account, "12").await;
    let back = payment_where(&app, &by_account, "the excess is sent back", |reply| {
        reply.json["refunds"][0]["status"] == "sent" && reply.json["status"] == "settled"
    });
    let back = back.await;
    let refund = &back.json["refunds"][0];
    assert_eq!(
        (&refund["amount"], &refund["requested_by"], &refund["address"]),
        (&json!("2.00"), &json!("schedule"), &back.json["transfers"][0]["from"])
    );
    assert_eq!(back.json["settlement"]["amount"], "10.00");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet_of(&by_account)).await, 0);
    // The overpayment is announced although no decision is needed; the refund and the settlement become final in the
    // chain's order.
    let taken = ["payment.mismatched", "payin.mismatched", "payment.confirmed", "payin.confirmed"];
    let mut notified = events_of(&app, &by_account).await;
    assert_eq!(notified[..4], taken);
    notified[4..].sort_unstable();
    assert_eq!(notified[4..], ["payin.settled", "payment.settled", "refund.sent"]);

    pay_from_contract(&app, &by_contract, "12").await;
    let settled = app.payment_when(&by_contract, "settled").await;
    assert_eq!((&settled.json["refunds"], &settled.json["settlement"]["amount"]), (&json!([]), &json!("10.00")));
    assert_eq!(events_of(&app, &by_contract).await, [taken.as_slice(), &["payment.settled", "payin.settled"]].concat());
    let log = app.get(&format!("{}/webhooks", path_of(&by_contract))).await;
    let mismatched = &log.json["deliveries"][0]["payload"];
    assert_eq!(
        (&mismatched["status"], &mismatched["amount_received"], &mismatched["labels"]),
        (&json!("confirmed"), &json!("12.00"), &json!(["OVERPAID"]))
    );
    let path = format!("{}/refunds", path_of(&by_contract));
    app.post(&path, &json!({ "amount": "2" })).await.assert_problem(422, "refund_address_required");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, wallet_of(&by_contract)).await, 2_000_000, "it is held");
    refunded(&app, &by_contract, &json!({ "amount": "2", "address": ADA })).await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_000_000);
}

#[tokio::test]
async fn refund_without_an_address_goes_to_the_only_sender() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    set_policies(&app, &PspPolicies { refund_to_sender: true, ..PspPolicies::default() }).await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "4").await;
    let short = app.payment_when(&made, "mismatched").await;
    let sender = &short.json["transfers"][0]["from"];
    let refund = refunded(&app, &made, &json!({})).await;
    assert_eq!((&refund["address"], &refund["amount"]), (sender, &json!("4.00")));
    // With two senders the owner is ambiguous.
    let shared = app.add_payment(&merchant).await;
    app.pay(&shared, "3").await;
    app.pay(&shared, "3").await;
    payment_where(&app, &shared, "both have paid", |reply| reply.json["amount_received"] == "6.00").await;
    let asked = app.post(&format!("{}/refunds", path_of(&shared)), &json!({})).await;
    asked.assert_problem(422, "refund_address_required");
}

#[tokio::test]
async fn misdirected_transfers_are_refunded_from_the_same_wallet() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    let wallet = wallet_of(&made).parse().unwrap();
    let (base, polygon) = (app.env().chain(Chain::Base), app.env().chain(Chain::Polygon));
    base.transfer(Payer::Clean, Token::Usdt, wallet, "7".parse().unwrap()).await.unwrap();
    polygon.transfer(Payer::Clean, Token::Usdc, wallet, "5".parse().unwrap()).await.unwrap();
    let held = payment_where(&app, &made, "both are final and screened", |reply| {
        let transfers = reply.json["transfers"].as_array().unwrap();
        transfers.len() == 2 && transfers.iter().all(|one| one["status"] == "final" && one["kyt_verdict"] == "allow")
    });
    let held = held.await;
    assert!(has_label(&held, "WRONG_TOKEN") && has_label(&held, "WRONG_CHAIN"), "{}", held.text());
    assert_eq!((&held.json["status"], &held.json["amount_received"]), (&json!("pending"), &json!("0.00")));
    let notified = events_of(&app, &made).await;
    assert!(!notified.is_empty() && notified.iter().all(|event| event == "payment.mismatched"), "{notified:?}");

    let path = format!("{}/refunds", path_of(&made));
    let usdt = base.spec().token_address(Token::Usdt).unwrap();
    let too_much = json!({ "token_address": usdt, "amount": "7.01", "address": ADA });
    app.post(&path, &too_much).await.assert_problem(409, "refund_too_large");
    let elsewhere = json!({ "chain": "arbitrum", "address": ADA });
    app.post(&path, &elsewhere).await.assert_problem(409, "nothing_to_refund");
    let faults = app.post(&path, &json!({ "chain": "doge", "token_address": "0x1" })).await.faults();
    assert_eq!(faults, ["chain: unknown_value", "token_address: invalid_address"]);
    app.post(&path, &json!({ "chain": "polygon" })).await.assert_problem(422, "refund_address_required");

    let token = refunded(&app, &made, &json!({ "token_address": usdt, "address": ADA })).await;
    assert_eq!(
        (&token["currency"], &token["chain"], &token["amount"], &token["funds"]),
        (&json!("USDT"), &json!("base"), &json!("7.00"), &json!("misdirected"))
    );
    let chain = refunded(&app, &made, &json!({ "chain": "polygon", "address": ADA })).await;
    assert_eq!(
        (&chain["currency"], &chain["chain"], &chain["amount"]),
        (&json!("USDC"), &json!("polygon"), &json!("5.00"))
    );
    assert_eq!(balance(&app, Chain::Base, Token::Usdt, ADA).await, 7_000_000);
    assert_eq!(balance(&app, Chain::Polygon, Token::Usdc, ADA).await, 5_000_000);
    // The due amount can still be paid.
    app.pay(&made, "10").await;
    assert_eq!(app.payment_when(&made, "settled").await.json["amount_received"], "10.00");
}
