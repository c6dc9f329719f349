//! Payments by signature.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolValue};
use payferry_contracts::{CREATE2_DEPLOYER, Token as TokenContract, create2_deploy_input};
use payferry_devchain::DevWallet;
use payferry_harness::eventually;
use payferry_harness::node::{Dropped, Node};
use payferry_harness::payers::send_as;
use payferry_harness::psp::units;

use crate::http::authorizations::{signed_by, signed_for, typed_data};
use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage, until_block};

on_every_stage!(
    signed_and_settled,
    signed_by_accounts_with_code,
    signed_and_sent_by_hand,
    collection_mined_again,
    collection_gone_for_good,
);

/// Compiled from `contracts/sol/test/SmartWallet.sol`.
const SMART_WALLET: &str = include_str!("../../../contracts/artifacts/test/SmartWallet.json");
const SETTLED: [&str; 4] = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];

/// Signs the payment as the payer's wallet would, and submits it.
async fn sign<S: Stage>(stage: &S, psp: &Client, id: &str) {
    let body = signed_by(&stage.payer(), &typed_data(&psp.read(id).await));
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

/// A contract wallet (ERC-1271) and an account that delegates to one (EIP-7702) pay with the wallet's own signature.
async fn signed_by_accounts_with_code<S: Stage>(stage: &S, psp: &Client) {
    let chain = Chain::Base;
    let (node, owner, delegating) = (stage.node(chain), stage.payer(), DevWallet::from_seed("a delegating payer"));
    let wallet = smart_wallet(node, &owner, owner.address()).await;
    let delegate = smart_wallet(node, &owner, delegating.address()).await;
    let delegation = format!("0xef0100{}", hex::encode(delegate));
    node.rpc("anvil_setCode", json!([delegating.address(), delegation])).await;
    for (from, owner) in [(wallet, &owner), (delegating.address(), &delegating)] {
        let id = psp.payment("10", Token::Usdc, chain).await;
        let payment = psp.read(&id).await;
        let token: Address = payment["token_address"].as_str().unwrap().parse().unwrap();
        let fund = TokenContract::transferCall { to: from, value: U256::from(10_000_000) }.abi_encode();
        sent(node, &stage.payer(), token, fund).await;
        let mut body = signed_for(from, owner, &typed_data(&payment));
        let path = format!("/payments/{id}/authorization");
        let (status, refused) = psp.call(Method::POST, &path, body.clone()).await;
        assert_eq!((status.as_u16(), &refused["code"]), (422, &json!("authorization_signature")), "{refused:#}");
        // Signatures of this wallet have one more byte.
        body["signature"] = json!(format!("{}00", body["signature"].as_str().unwrap()));
        psp.ok(Method::POST, &path, body).await;
        let settled = psp.until_status(&id, "settled").await;
        assert_has(&settled, json!({ "authorization/from": from.to_string(), "authorization/state": "final" }));
        assert_eq!(node.balance_of(token, from).await, U256::ZERO);
        assert_eq!(psp.events(&id).await, SETTLED);
    }
}

/// Deploys a contract wallet of this owner; returns its address.
async fn smart_wallet(node: &Node, deployer: &DevWallet, owner: Address) -> Address {
    let artifact: Value = serde_json::from_str(SMART_WALLET).unwrap();
    let code: Bytes = artifact["bytecode"].as_str().unwrap().parse().unwrap();
    let init_code = [code.to_vec(), owner.abi_encode()].concat();
    sent(node, deployer, CREATE2_DEPLOYER, create2_deploy_input(B256::ZERO, &init_code).to_vec()).await;
    CREATE2_DEPLOYER.create2_from_code(B256::ZERO, &init_code)
}

/// Sends a call and waits until it is mined successfully.
async fn sent(node: &Node, sender: &DevWallet, to: Address, input: Vec<u8>) {
    let hash = send_as(node, sender, to, input.into(), 1_000_000).await;
    let receipt = until("the call is mined", async || node.receipt(hash).await).await;
    assert!(receipt.status(), "{receipt:#?}");
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
