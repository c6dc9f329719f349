//! Reorgs.

use std::time::{Duration, Instant};

use payferry_harness::PATIENCE;

use crate::prelude::*;
use crate::stage::{Client, Dropped, Stage, Transfer, on_every_stage};

on_every_stage!(dropped_and_mined_again, gone_for_good, a_settlement_mined_again, a_settlement_gone_for_good,);

/// A transfer dropped before finality leaves the payment pending, and counts once when it is mined again.
async fn dropped_and_mined_again<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Base;
    let id = psp.payment("10", Token::Usdc, chain).await;
    stage.pause_mining(chain).await;
    stage.pay(&id, Transfer::exact()).await;
    stage.mine(chain, 1).await;
    psp.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;

    stage.reorg(chain, 1, Dropped::Remine).await;
    let back = psp.until(&id, "reorged", |payment| has_label(payment, "REORGED")).await;
    assert_has(&back, json!({ "status": "pending", "transfers/0/status": "orphaned" }));

    stage.mine(chain, 3).await;
    stage.resume_mining(chain).await;
    let settled = psp.until_status(&id, "settled").await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
}

/// A transfer dropped for good lets the payment expire.
async fn gone_for_good<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Arbitrum;
    let id = psp.payment("10", Token::Usdc, chain).await;
    stage.pause_mining(chain).await;
    stage.pay(&id, Transfer::exact()).await;
    stage.mine(chain, 1).await;
    psp.until(&id, "seen", |payment| payment["transfers"][0]["status"] == "seen").await;
    stage.reorg(chain, 1, Dropped::Discard).await;
    stage.resume_mining(chain).await;
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
    stage.pause_mining(chain).await;
    stage.pay(&id, Transfer::exact()).await;
    // Block by block, up to the one with the settlement.
    let (since, nothing) = (Instant::now(), (0, 0));
    while stage.holdings(chain, Token::Usdc).await == nothing {
        assert!(since.elapsed() < PATIENCE, "not settled in time: {:#}", psp.read(&id).await);
        stage.mine(chain, 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stage.reorg(chain, 1, dropped).await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, nothing);
    assert_eq!(psp.read(&id).await["status"], "confirmed");

    stage.resume_mining(chain).await;
    psp.until_status(&id, "settled").await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
    assert_eq!(psp.events(&id).await, ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"]);
}
