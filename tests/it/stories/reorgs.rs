//! Reorgs.

use payferry_harness::eventually;
use payferry_harness::node::Dropped;

use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage, until_block};

on_every_stage!(dropped_and_mined_again, gone_for_good, a_settlement_mined_again, a_settlement_gone_for_good,);

/// A transfer dropped before finality leaves the payment pending, and counts once when it is mined again.
async fn dropped_and_mined_again<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Base;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let node = stage.node(chain);
    node.pause_mining().await;
    stage.pay(&id, Transfer::exact()).await;
    node.mine(1).await;
    psp.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;

    node.reorg(1, Dropped::Remine).await;
    let back = psp.until(&id, "reorged", |payment| has_label(payment, "REORGED")).await;
    assert_has(&back, json!({ "status": "pending", "transfers/0/status": "orphaned" }));

    node.mine(3).await;
    node.resume_mining().await;
    let settled = psp.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
}

/// A permanently dropped transfer lets the payment expire.
async fn gone_for_good<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Arbitrum;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let node = stage.node(chain);
    node.pause_mining().await;
    stage.pay(&id, Transfer::exact()).await;
    node.mine(1).await;
    psp.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;
    node.reorg(1, Dropped::Discard).await;
    node.resume_mining().await;
    psp.until(&id, "reorged", |payment| has_label(payment, "REORGED")).await;
    stage.advance(3_600).await;
    let failed = psp.until_status(&id, "failed").await;
    assert_has(&failed, json!({ "failure_reason": "expired", "amount_received": "0.00" }));
}

/// A settlement in a dropped block is not reported, and moves the money once when it is mined again.
async fn a_settlement_mined_again<S: Stage>(stage: &S, psp: &Client) {
    settlement_dropped(stage, psp, Dropped::Remine).await;
}

/// A settlement that the chain drops is sent again.
async fn a_settlement_gone_for_good<S: Stage>(stage: &S, psp: &Client) {
    settlement_dropped(stage, psp, Dropped::Discard).await;
}

async fn settlement_dropped<S: Stage>(stage: &S, psp: &Client, dropped: Dropped) {
    let chain = Chain::Polygon;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let node = stage.node(chain);
    node.pause_mining().await;
    stage.pay(&id, Transfer::exact()).await;
    // Block by block, up to the one with the settlement.
    let nothing = (0, 0);
    let mined = async || {
        node.mine(1).await;
        until_block(stage, chain, node.head().await.number).await;
        if stage.holdings(chain, Token::Usdc).await == nothing { Err(psp.read(&id).await) } else { Ok(()) }
    };
    eventually("the payment is settled", mined).await;
    node.reorg(1, dropped).await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, nothing);
    assert_eq!(psp.read(&id).await["status"], "confirmed");

    node.resume_mining().await;
    psp.until_status(&id, "settled").await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
    assert_eq!(psp.events(&id).await, ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"]);
}
