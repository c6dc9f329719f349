//! Payments by signature.

use payferry_harness::eventually;
use payferry_harness::node::Dropped;
use payferry_harness::psp::units;

use crate::http::authorizations::signed_by;
use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage, until_block};

on_every_stage!(signed_and_settled, signed_and_sent_by_hand, collection_mined_again, collection_gone_for_good,);

const SETTLED: [&str; 4] = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];

/// Signs the payment as the payer's wallet would, and submits it.
async fn sign<S: Stage>(stage: &S, psp: &Client, id: &str) {
    let payment = psp.read(id).await;
    let methods = payment["payment_methods"].as_array().unwrap();
    let method =
        methods.iter().find(|method| method["type"] == "authorization").unwrap_or_else(|| panic!("{payment:#}"));
    let body = signed_by(&stage.payer(), &method["typed_data"]);
    psp.ok(Method::POST, &format!("/payments/{id}/authorization"), body).await;
}

/// The amount is collected and settled in one transaction, on every chain.
async fn signed_and_settled<S: Stage>(stage: &S, psp: &Client) {
    for chain in Chain::ALL {
        let id = psp.payment("12.345678", Token::Usdc, chain).await;
        sign(stage, psp, &id).await;
        let payment = psp.until_status(&id, "settled").await;
        let hash = payment["authorization"]["tx_hash"].clone();
        let expected = json!({ "amount_received": "12.345678", "transfers/0/tx_hash": hash, "settlement/tx_hash": hash,
            "transfers/0/counted": true, "kyt_verdict": "allow", "authorization/state": "final", "labels/0": "AUTHORIZED" });
        assert_has(&payment, expected);
        let (psp_amount, fee) = stage.holdings(chain, Token::Usdc).await;
        assert_eq!(psp_amount, units(&payment["settlement"]["psp_amount"]));
        assert_eq!(fee, units(&payment["settlement"]["treasury_fee"]));
        assert_eq!(psp.events(&id).await, SETTLED);
    }
}

/// When the payer both signs and sends, the collection pays, and the rest is refundable.
async fn signed_and_sent_by_hand<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Base;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let node = stage.node(chain);
    node.pause_mining().await;
    sign(stage, psp, &id).await;
    psp.until(&id, "with the settler", |payment| payment["authorization"]["state"] == "submitted").await;
    stage.pay(&id, Transfer::exact()).await;
    node.resume_mining().await;
    let settled = psp.until(&id, "paid twice", |payment| payment["excess_received"] == "10.00").await;
    assert_has(&settled, json!({ "status": "settled", "amount_received": "10.00", "authorization/state": "final" }));
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000), "one of the two is settled");
    let back = json!({ "amount": "10", "address": "0x000000000000000000000000000000000000ada1" });
    psp.ok(Method::POST, &format!("/payments/{id}/refunds"), back).await;
    psp.until(&id, "refunded", |payment| payment["refunds"][0]["status"] == "sent").await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000), "from the payment's wallet");
}

/// A collection in a dropped block is not reported, and takes the money once when it is mined again.
async fn collection_mined_again<S: Stage>(stage: &S, psp: &Client) {
    collection_dropped(stage, psp, Dropped::Remine).await;
}

/// A collection that the chain drops is sent again.
async fn collection_gone_for_good<S: Stage>(stage: &S, psp: &Client) {
    collection_dropped(stage, psp, Dropped::Discard).await;
}

async fn collection_dropped<S: Stage>(stage: &S, psp: &Client, dropped: Dropped) {
    let chain = Chain::Polygon;
    let id = psp.payment("10", Token::Usdc, chain).await;
    let node = stage.node(chain);
    node.pause_mining().await;
    sign(stage, psp, &id).await;
    // Block by block, up to the one with the collection.
    let nothing = (0, 0);
    let mined = async || {
        node.mine(1).await;
        until_block(stage, chain, node.head().await.number).await;
        if stage.holdings(chain, Token::Usdc).await == nothing { Err(psp.read(&id).await) } else { Ok(()) }
    };
    eventually("the payment is collected", mined).await;
    node.reorg(1, dropped).await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, nothing);
    assert_eq!(psp.read(&id).await["status"], "pending");

    node.resume_mining().await;
    psp.until_status(&id, "settled").await;
    assert_eq!(stage.holdings(chain, Token::Usdc).await, (9_900_000, 100_000));
    assert_eq!(psp.events(&id).await, SETTLED);
}
