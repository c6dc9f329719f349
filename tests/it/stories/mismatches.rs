//! Transfers that do not fit: underpayment, overpayment, partial payments, blocked money.

use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage};

on_every_stage!(
    too_little_and_then_the_rest,
    overpaid,
    more_after_the_settlement,
    sanctioned_money,
    tainted_dust,
    wrong_token_and_wrong_chain,
    paid_after_it_was_cancelled,
);

/// An underpayment is mismatched, and a second transfer completes it.
async fn too_little_and_then_the_rest<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    stage.pay(&id, Transfer::of("4")).await;
    let short = psp.until_status(&id, "mismatched").await;
    assert_has(&short, json!({ "labels": ["UNDERPAID"], "amount_received": "4.00", "amount_due": "6.00" }));
    assert_eq!(psp.events(&id).await, ["payment.mismatched", "payin.underpaid", "payin.mismatched"]);

    stage.pay(&id, Transfer::of("6")).await;
    let settled = psp.until_status(&id, "settled").await;
    assert_has(&settled, json!({ "amount_received": "10.00", "labels": ["MULTIPLE"] }));
    assert_eq!(stage.holdings(Chain::Base, Token::Usdc).await, (9_900_000, 100_000));
}

/// An overpayment is mismatched and waits for the PSP.
async fn overpaid<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdt, Chain::Polygon).await;
    stage.pay(&id, Transfer::of("11")).await;
    let over = psp.until_status(&id, "mismatched").await;
    assert_eq!(over["labels"], json!(["OVERPAID"]));
    assert_eq!(psp.events(&id).await, ["payment.mismatched", "payin.mismatched"]);
    assert_eq!(stage.holdings(Chain::Polygon, Token::Usdt).await, (0, 0));
}

/// A transfer after the settlement is excess and announced.
async fn more_after_the_settlement<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Arbitrum).await;
    stage.pay(&id, Transfer::exact()).await;
    psp.until_status(&id, "settled").await;
    stage.pay(&id, Transfer::of("3")).await;
    let more = psp.until(&id, "in excess", |payment| payment["excess_received"] == "3.00").await;
    assert_has(&more, json!({ "status": "settled", "amount_received": "10.00" }));
    assert!(has_label(&more, "EXCESS"));
    assert_eq!(stage.holdings(Chain::Arbitrum, Token::Usdc).await, (9_900_000, 100_000));
}

/// A sanctioned transfer fails the payment and is not settled.
async fn sanctioned_money<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    stage.pay(&id, Transfer::exact().sanctioned()).await;
    let failed = psp.until_status(&id, "failed").await;
    assert_has(&failed, json!({ "failure_reason": "kyt_blocked", "kyt_verdict": "block", "amount_received": "0.00" }));
    assert_eq!(psp.events(&id).await, ["payment.failed", "payin.failed"]);
    assert_eq!(stage.holdings(Chain::Base, Token::Usdc).await, (0, 0));
}

/// Blocked dust does not affect a payment.
async fn tainted_dust<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    stage.pay(&id, Transfer::of("1").sanctioned()).await;
    let held = psp.until(&id, "held", |p| has_label(p, "FUNDS_BLOCKED")).await;
    assert_eq!(held["status"], "pending");
    stage.pay(&id, Transfer::exact()).await;
    let settled = psp.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(stage.holdings(Chain::Base, Token::Usdc).await, (9_900_000, 100_000));
}

/// Transfers in the wrong token or on the wrong chain are labelled and never counted.
async fn wrong_token_and_wrong_chain<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    stage.pay(&id, Transfer::exact().in_token(Token::Usdt)).await;
    stage.pay(&id, Transfer::exact().on(Chain::Polygon)).await;
    let is_labelled = |payment: &Value| has_label(payment, "WRONG_TOKEN") && has_label(payment, "WRONG_CHAIN");
    let labelled = psp.until(&id, "labelled", is_labelled).await;
    assert_has(&labelled, json!({ "status": "pending", "amount_received": "0.00" }));
    stage.pay(&id, Transfer::exact()).await;
    assert_eq!(psp.until_status(&id, "settled").await["amount_received"], "10.00");
}

/// A cancelled payment fails, and a later transfer is late.
async fn paid_after_it_was_cancelled<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    psp.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!(psp.read(&id).await["failure_reason"], "cancelled");
    let (status, problem) = psp.call(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("payment_not_pending")));
    stage.pay(&id, Transfer::exact()).await;
    let late = psp.until_status(&id, "mismatched").await;
    assert!(has_label(&late, "LATE"), "{late:#}");
}
