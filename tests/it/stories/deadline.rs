//! Deadlines follow the time of blocks.

use payferry_harness::psp::Psp;

use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage, seconds, until_read};

on_every_stage!(nothing_comes_and_it_expires, in_time_and_final_later, too_late, moved_on_by_an_outage,);

/// A payment without a transfer expires at its deadline.
async fn nothing_comes_and_it_expires<S: Stage>(stage: &S, psp: &Client) {
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    let expires_at = expiry(psp, &id).await;
    // Margin for a busy machine, because real time counts too.
    stage.advance(1_140).await;
    until_read(stage, Chain::Base, expires_at.plus_secs(-90)).await;
    assert_eq!(psp.read(&id).await["status"], "pending");
    stage.advance(120).await;
    let failed = psp.until_status(&id, "failed").await;
    assert_eq!(failed["failure_reason"], "expired");
    assert_eq!(psp.events(&id).await, ["payment.failed", "payin.failed"]);
}

/// A transfer in a block before the deadline is in time, even if it becomes final after it.
async fn in_time_and_final_later<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Base;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(psp, &id).await;
    // On a paused chain the test itself mines the block before the deadline.
    let (node, expires_secs) = (stage.node(chain), seconds(expires_at));
    node.pause_mining().await;
    node.advance_to(expires_secs - 2).await;
    stage.pay(&id, Transfer::exact()).await;
    node.mine_at(expires_secs - 1).await;
    node.mine_at(expires_secs + 1).await;
    node.mine_at(expires_secs + 2).await;
    node.resume_mining().await;
    let settled = psp.until_status(&id, "settled").await;
    assert_eq!(settled["labels"], json!([]));
}

/// A transfer in a block after the deadline is late.
async fn too_late<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Polygon;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(psp, &id).await;
    let (node, expires_secs) = (stage.node(chain), seconds(expires_at));
    node.pause_mining().await;
    node.advance_to(expires_secs - 2).await;
    stage.pay(&id, Transfer::exact()).await;
    node.mine_at(expires_secs + 1).await;
    node.resume_mining().await;
    let late = psp.until_status(&id, "mismatched").await;
    assert!(has_label(&late, "LATE"), "{late:#}");
    let events = psp.events(&id).await;
    assert_eq!(events, ["payment.failed", "payin.failed", "payment.mismatched", "payin.mismatched"]);
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (0, 0));
}

/// An outage of the chain extends the deadline.
async fn moved_on_by_an_outage<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Arbitrum;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let expires_at = expiry(psp, &id).await;
    stage.node(chain).jump_time(3_600).await;
    let is_extended = |payment: &Value| expires_at_of(payment) >= expires_at.plus_secs(3_500);
    let moved = psp.until(&id, "extended", is_extended).await;
    assert_eq!(moved["status"], "pending");
    stage.pay(&id, Transfer::exact()).await;
    psp.until_status(&id, "settled").await;
}

async fn expiry(psp: &Psp, id: &str) -> Timestamp {
    expires_at_of(&psp.read(id).await)
}

fn expires_at_of(payment: &Value) -> Timestamp {
    payment["expires_at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap().into()
}
