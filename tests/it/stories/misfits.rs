//! Money that does not fit: too little, too much, in parts, tainted.

use payferry_domain::{Chain, Token};
use reqwest::Method;
use serde_json::{Value, json};

use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn too_little_is_mismatched_and_a_second_transfer_completes_it() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.pay(&id, json!({"amount": "4"})).await;
    let short = world.until_status(&id, "mismatched").await;
    assert_eq!(short["labels"], json!(["UNDERPAID"]));
    assert_eq!((&short["amount_received"], &short["amount_due"]), (&json!("4.00"), &json!("6.00")));
    assert_eq!(world.events(&id).await, ["payment.mismatched", "payin.underpaid", "payin.mismatched"]);

    world.pay(&id, json!({"amount": "6"})).await;
    let settled = world.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(settled["labels"], json!(["MULTIPLE"]));
    assert_eq!(world.holdings(Chain::Base, Token::Usdc).await, (9_900_000, 100_000));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_is_mismatched_and_waits_for_the_psp() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdt, Chain::Polygon).await;
    world.pay(&id, json!({"amount": "11"})).await;
    let over = world.until_status(&id, "mismatched").await;
    assert_eq!(over["labels"], json!(["OVERPAID"]));
    assert_eq!(world.events(&id).await, ["payment.mismatched", "payin.mismatched"]);
    assert_eq!(world.holdings(Chain::Polygon, Token::Usdt).await, (0, 0));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_after_settlement_is_excess_and_announced() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Arbitrum).await;
    world.pay(&id, json!({})).await;
    world.until_status(&id, "settled").await;
    world.pay(&id, json!({"amount": "3"})).await;
    let more = world.until(&id, "in excess", |payment| payment["excess_received"] == "3.00").await;
    assert_eq!((&more["status"], &more["amount_received"]), (&json!("settled"), &json!("10.00")));
    assert!(more["labels"].as_array().unwrap().contains(&json!("EXCESS")));
    assert_eq!(world.holdings(Chain::Arbitrum, Token::Usdc).await, (9_900_000, 100_000));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sanctioned_money_fails_the_payment_and_is_not_settled() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.pay(&id, json!({"from": "sanctioned"})).await;
    let failed = world.until_status(&id, "failed").await;
    assert_eq!(failed["failure_reason"], "kyt_blocked");
    assert_eq!(failed["kyt_verdict"], "block");
    assert_eq!(failed["amount_received"], "0.00");
    assert_eq!(world.events(&id).await, ["payment.failed", "payin.failed"]);
    assert_eq!(world.holdings(Chain::Base, Token::Usdc).await, (0, 0));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tainted_dust_does_not_spoil_a_payment() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.pay(&id, json!({"from": "sanctioned", "amount": "1"})).await;
    let held = world.until(&id, "held", |p| p["labels"].as_array().unwrap().contains(&json!("FUNDS_BLOCKED"))).await;
    assert_eq!(held["status"], "pending");
    world.pay(&id, json!({})).await;
    let settled = world.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(world.holdings(Chain::Base, Token::Usdc).await, (9_900_000, 100_000));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_token_and_wrong_chain_are_labelled_and_never_counted() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.pay(&id, json!({"currency": "USDT"})).await;
    world.pay(&id, json!({"chain": "polygon"})).await;
    let labelled = world
        .until(&id, "labelled", |payment| {
            let labels = payment["labels"].as_array().unwrap();
            labels.contains(&json!("WRONG_TOKEN")) && labels.contains(&json!("WRONG_CHAIN"))
        })
        .await;
    assert_eq!((&labelled["status"], &labelled["amount_received"]), (&json!("pending"), &json!("0.00")));
    world.pay(&id, json!({})).await;
    assert_eq!(world.until_status(&id, "settled").await["amount_received"], "10.00");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_payment_fails_and_later_money_is_late() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.ok(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!(world.read(&id).await["failure_reason"], "cancelled");
    let (status, problem) = world.call(Method::POST, &format!("/payments/{id}/cancel"), Value::Null).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("payment_not_pending")));
    world.pay(&id, json!({})).await;
    let late = world.until_status(&id, "mismatched").await;
    assert!(late["labels"].as_array().unwrap().contains(&json!("LATE")), "{late:#}");
    app.stop().await;
}
