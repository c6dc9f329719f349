//! The chain takes blocks back.

use payferry_domain::{Chain, Token};
use reqwest::Method;
use serde_json::json;

use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_dropped_before_finality_leaves_the_payment_pending_and_counts_once_when_remined() {
    let (app, world) = story().await;
    let chain = Chain::Base;
    let id = world.payment("10", Token::Usdc, chain).await;
    app.pause_mining(chain);
    world.pay(&id, json!({})).await;
    world.mine(chain, 1).await;
    world.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;

    let reorg = json!({"depth": 1, "dropped": "remine"});
    world.ok(Method::POST, &format!("/sandbox/chains/{chain}/reorg"), reorg).await;
    let back =
        world.until(&id, "reorged", |payment| payment["labels"].as_array().unwrap().contains(&json!("REORGED"))).await;
    assert_eq!(back["status"], "pending");
    assert_eq!(back["transfers"][0]["status"], "orphaned");

    world.mine(chain, 3).await;
    app.resume_mining(chain);
    let settled = world.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(world.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_gone_for_good_lets_the_payment_expire() {
    let (app, world) = story().await;
    let chain = Chain::Arbitrum;
    let id = world.payment("10", Token::Usdc, chain).await;
    app.pause_mining(chain);
    world.pay(&id, json!({})).await;
    world.mine(chain, 1).await;
    world.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;
    let reorg = json!({"depth": 1, "dropped": "discard"});
    world.ok(Method::POST, &format!("/sandbox/chains/{chain}/reorg"), reorg).await;
    app.resume_mining(chain);
    world.until(&id, "reorged", |payment| payment["labels"].as_array().unwrap().contains(&json!("REORGED"))).await;
    world.advance(3_600).await;
    let failed = world.until_status(&id, "failed").await;
    assert_eq!((&failed["failure_reason"], &failed["amount_received"]), (&json!("expired"), &json!("0.00")));
    app.stop().await;
}
