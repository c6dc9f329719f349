//! The deadline is judged by the time of blocks.

use payferry_domain::{Chain, Timestamp, Token};
use serde_json::json;

use super::story;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_until_the_deadline_expires_the_payment() {
    let (app, world) = story().await;
    let id = world.payment("10", Token::Usdc, Chain::Base).await;
    world.advance(1_190).await;
    world.mine(Chain::Base, 2).await;
    assert_eq!(world.read(&id).await["status"], "pending");
    world.advance(20).await;
    let failed = world.until_status(&id, "failed").await;
    assert_eq!(failed["failure_reason"], "expired");
    assert_eq!(world.events(&id).await, ["payment.failed", "payin.failed"]);
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_in_a_block_before_the_deadline_is_in_time_even_if_it_is_final_after_it() {
    let (app, world) = story().await;
    let chain = Chain::Base;
    let id = world.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(&world, &id).await;
    // On a chain that mines only when told, the block before the deadline is the story's to make.
    app.pause_mining(chain);
    app.advance_chain_to(chain, expires_at.plus_secs(-2)).await;
    world.pay(&id, json!({})).await;
    app.mine_at(chain, expires_at.plus_secs(-1)).await;
    app.mine_at(chain, expires_at.plus_secs(1)).await;
    app.mine_at(chain, expires_at.plus_secs(2)).await;
    app.resume_mining(chain);
    let settled = world.until_status(&id, "settled").await;
    assert_eq!(settled["labels"], json!([]));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_in_a_block_after_the_deadline_is_late() {
    let (app, world) = story().await;
    let chain = Chain::Polygon;
    let id = world.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(&world, &id).await;
    app.pause_mining(chain);
    app.advance_chain_to(chain, expires_at.plus_secs(-2)).await;
    world.pay(&id, json!({})).await;
    app.mine_at(chain, expires_at.plus_secs(1)).await;
    app.resume_mining(chain);
    let late = world.until_status(&id, "mismatched").await;
    assert!(late["labels"].as_array().unwrap().contains(&json!("LATE")), "{late:#}");
    let events = world.events(&id).await;
    assert_eq!(events, ["payment.failed", "payin.failed", "payment.mismatched", "payin.mismatched"]);
    assert_eq!(world.holdings(chain, Token::Usdc).await, (0, 0));
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_chain_moves_the_deadline_on() {
    let (app, world) = story().await;
    let chain = Chain::Arbitrum;
    let id = world.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(&world, &id).await;
    app.jump_chain(chain, 3_600).await;
    let moved = world
        .until(&id, "extended", |payment| {
            payment["expires_at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap()
                >= chrono::DateTime::<chrono::Utc>::from(expires_at.plus_secs(3_500))
        })
        .await;
    assert_eq!(moved["status"], "pending");
    world.pay(&id, json!({})).await;
    world.until_status(&id, "settled").await;
    app.stop().await;
}

async fn expiry(world: &World, id: &str) -> Timestamp {
    let payment = world.read(id).await;
    let expires_at: chrono::DateTime<chrono::Utc> = payment["expires_at"].as_str().unwrap().parse().unwrap();
    Timestamp::from(expires_at)
}
