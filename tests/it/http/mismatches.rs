//! Transfers that do not fit: a month late, duplicate, an overpayment under a policy, in the wrong token or on the
//! wrong chain. Each is labelled, announced, and sent where the PSP wants it, on the chain as in the record.

use std::time::Duration;

use payferry::sandbox::Payer;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_entities::psps;
use payferry_journal::psps::PspPolicies;
use sea_orm::sea_query::Expr;

use crate::prelude::*;

const ADA: &str = "0x000000000000000000000000000000000000ada4";
const MONTH: Duration = Duration::from_secs(30 * 86_400 + 1);

pub(crate) async fn set_policies(app: &TestApp, policies: &PspPolicies) {
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
async fn ended_long_ago(app: &TestApp, cancelled: bool) -> Reply {
    let made = app.initiate(&json!({ "expires_in": 60 })).await;
    if cancelled {
        app.post(&format!("{}/cancel", made.path()), &json!({})).await;
    } else {
        app.env().advance(90).await.unwrap();
    }
    app.payment_when(&made, "failed").await;
    made
}

/// Asserts that 7 USDT on Base and 5 USDC on Polygon are refunded from the payment's wallet.
async fn assert_refundable_in_place(app: &TestApp, made: &Reply) {
    let usdt = app.env().chain(Chain::Base).spec().token_address(Token::Usdt).unwrap();
    let token = app.refunded(made, &json!({ "token_address": usdt, "address": ADA })).await;
    assert_has(&token, json!({ "currency": "USDT", "chain": "base", "amount": "7.00", "funds": "misdirected" }));
    let chain = app.refunded(made, &json!({ "chain": "polygon", "address": ADA })).await;
    assert_has(&chain, json!({ "currency": "USDC", "chain": "polygon", "amount": "5.00" }));
    assert_eq!(balance(app, Chain::Base, Token::Usdt, ADA).await, 7_000_000);
    assert_eq!(balance(app, Chain::Polygon, Token::Usdc, ADA).await, 5_000_000);
}

#[tokio::test]
async fn transfer_a_month_after_the_end_is_late_and_refundable() {
    let app = TestApp::start_with_chains().await;
    let expired = ended_long_ago(&app, false).await;
    let cancelled = ended_long_ago(&app, true).await;
    sleep(&app, MONTH).await;
    for payment in [&expired, &cancelled] {
        app.pay(payment, "10").await;
        let late = app.payment_when(payment, "mismatched").await;
        assert_has(&late, json!({ "labels": ["LATE"], "failure_reason": null }));
        let notified = ["payment.failed", "payin.failed", "payment.mismatched", "payin.mismatched"];
        assert_eq!(app.events_of(payment).await, notified);
        assert_eq!(balance(&app, Chain::Base, Token::Usdc, payment.wallet()).await, 10_000_000);
    }
    app.refunded(&expired, &json!({ "address": ADA })).await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    assert_eq!(app.get(&expired.path()).await["status"], "mismatched");
    let accepted = app.post(&format!("{}/resolve", cancelled.path()), &json!({ "action": "accept" })).await;
    assert_eq!(accepted["status"], "confirmed", "{}", accepted.text());
    let settled = app.payment_when(&cancelled, "settled").await;
    assert_eq!(settled["settlement"]["psp_amount"], "9.90");
    for payment in [&expired, &cancelled] {
        assert_eq!(balance(&app, Chain::Base, Token::Usdc, payment.wallet()).await, 0);
    }
}

#[tokio::test]
async fn misdirected_transfer_after_a_month_is_refunded_in_place() {
    let app = TestApp::start_with_chains().await;
    let made = ended_long_ago(&app, false).await;
    sleep(&app, MONTH).await;
    app.send(&made, Payer::Clean, Chain::Base, Token::Usdt, "7").await;
    app.send(&made, Payer::Clean, Chain::Polygon, Token::Usdc, "5").await;
    let is_labelled = |reply: &Reply| has_label(reply, "WRONG_TOKEN") && has_label(reply, "WRONG_CHAIN");
    let held = app.get_until(&made.path(), is_labelled).await;
    assert_has(&held, json!({ "status": "failed", "amount_received": "0.00" }));
    let notified = app.events_of(&made).await;
    assert_eq!(notified[..2], ["payment.failed", "payin.failed"]);
    assert!(
        notified.len() > 2 && notified[2..].iter().all(|event| event.as_str().unwrap().ends_with(".mismatched")),
        "{notified:?}"
    );

    assert_refundable_in_place(&app, &made).await;
    assert_eq!(app.get(&made.path()).await["status"], "failed");
}

#[tokio::test]
async fn second_payment_after_a_month_is_refundable() {
    let app = TestApp::start_with_chains().await;
    let made = app.paid("10", "settled").await;
    sleep(&app, MONTH).await;
    app.pay(&made, "10").await;
    let again = app.get_until(&made.path(), |reply| has_label(reply, "EXCESS")).await;
    assert_has(&again, json!({ "status": "settled", "excess_received": "10.00" }));
    let notified =
        ["confirmed", "settled", "mismatched"].map(|event| [format!("payment.{event}"), format!("payin.{event}")]);
    assert_eq!(app.events_of(&made).await, notified.concat());
    let refund = app.refunded(&made, &json!({ "amount": "10", "address": ADA })).await;
    assert_eq!(refund["source"], "payment", "the second payment is still in the payment's wallet");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, made.wallet()).await, 0);
}

#[tokio::test]
async fn excess_is_refunded_automatically_to_accounts_only() {
    let app = TestApp::start_with_chains().await;
    let policies =
        PspPolicies { overpayment: OverpaymentPolicy::RefundExcess, refund_to_sender: true, ..PspPolicies::default() };
    set_policies(&app, &policies).await;
    let (by_account, by_contract) = (app.add_payment().await, app.add_payment().await);
    app.pay(&by_account, "12").await;
    let is_sent_back = |reply: &Reply| reply["refunds"][0]["status"] == "sent" && reply["status"] == "settled";
    let back = app.get_until(&by_account.path(), is_sent_back).await;
    let refund = json!({ "amount": "2.00", "requested_by": "schedule", "address": back["transfers"][0]["from"] });
    assert_has(&back["refunds"][0], refund);
    assert_eq!(back["settlement"]["amount"], "10.00");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, by_account.wallet()).await, 0);
    // The overpayment is announced although no decision is needed; the refund and the settlement become final in the
    // chain's order.
    let taken = ["payment.mismatched", "payin.mismatched", "payment.confirmed", "payin.confirmed"];
    let mut notified = app.events_of(&by_account).await;
    assert_eq!(notified[..4], taken);
    notified[4..].sort_by_key(Value::to_string);
    assert_eq!(notified[4..], ["payin.settled", "payment.settled", "refund.sent"]);

    pay_from_contract(&app, &by_contract, "12").await;
    let settled = app.payment_when(&by_contract, "settled").await;
    assert_has(&settled, json!({ "refunds": [], "settlement/amount": "10.00" }));
    assert_eq!(app.events_of(&by_contract).await, [taken.as_slice(), &["payment.settled", "payin.settled"]].concat());
    let log = app.get(&format!("{}/webhooks", by_contract.path())).await;
    let mismatched = &log["deliveries"][0]["payload"];
    assert_has(mismatched, json!({ "status": "confirmed", "amount_received": "12.00", "labels": ["OVERPAID"] }));
    let path = format!("{}/refunds", by_contract.path());
    app.post(&path, &json!({ "amount": "2" })).await.assert_problem(422, "refund_address_required");
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, by_contract.wallet()).await, 2_000_000, "it is held");
    app.refunded(&by_contract, &json!({ "amount": "2", "address": ADA })).await;
    assert_eq!(balance(&app, Chain::Base, Token::Usdc, ADA).await, 2_000_000);
}

#[tokio::test]
async fn refund_without_an_address_goes_to_the_only_sender() {
    let app = TestApp::start_with_chains().await;
    set_policies(&app, &PspPolicies { refund_to_sender: true, ..PspPolicies::default() }).await;
    let made = app.paid("4", "mismatched").await;
    let sender = app.get(&made.path()).await["transfers"][0]["from"].clone();
    let refund = app.refunded(&made, &json!({})).await;
    assert_has(&refund, json!({ "address": sender, "amount": "4.00" }));
    // With two senders the owner is ambiguous.
    let shared = app.add_payment().await;
    app.pay(&shared, "3").await;
    app.pay(&shared, "3").await;
    app.get_until(&shared.path(), |reply| reply["amount_received"] == "6.00").await;
    app.post(&format!("{}/refunds", shared.path()), &json!({})).await.assert_problem(422, "refund_address_required");
}

#[tokio::test]
async fn misdirected_transfers_are_refunded_from_the_same_wallet() {
    let app = TestApp::start_with_chains().await;
    let made = app.add_payment().await;
    app.send(&made, Payer::Clean, Chain::Base, Token::Usdt, "7").await;
    app.send(&made, Payer::Clean, Chain::Polygon, Token::Usdc, "5").await;
    let is_screened = |reply: &Reply| {
        let transfers = reply["transfers"].as_array().unwrap();
        transfers.len() == 2 && transfers.iter().all(|one| one["status"] == "final" && one["kyt_verdict"] == "allow")
    };
    let held = app.get_until(&made.path(), is_screened).await;
    assert!(has_label(&held, "WRONG_TOKEN") && has_label(&held, "WRONG_CHAIN"), "{}", held.text());
    assert_has(&held, json!({ "status": "pending", "amount_received": "0.00" }));
    let notified = app.events_of(&made).await;
    assert!(!notified.is_empty() && notified.iter().all(|event| event == "payment.mismatched"), "{notified:?}");

    let path = format!("{}/refunds", made.path());
    let usdt = app.env().chain(Chain::Base).spec().token_address(Token::Usdt).unwrap();
    let too_much = json!({ "token_address": usdt, "amount": "7.01", "address": ADA });
    app.post(&path, &too_much).await.assert_problem(409, "refund_too_large");
    let elsewhere = json!({ "chain": "arbitrum", "address": ADA });
    app.post(&path, &elsewhere).await.assert_problem(409, "nothing_to_refund");
    let faults = app.post(&path, &json!({ "chain": "doge", "token_address": "0x1" })).await.faults();
    assert_eq!(faults, "chain: unknown_value, token_address: invalid_address");
    app.post(&path, &json!({ "chain": "polygon" })).await.assert_problem(422, "refund_address_required");

    assert_refundable_in_place(&app, &made).await;
    // The due amount can still be paid.
    app.pay(&made, "10").await;
    assert_eq!(app.payment_when(&made, "settled").await["amount_received"], "10.00");
}
