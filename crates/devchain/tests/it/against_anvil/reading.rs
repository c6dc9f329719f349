//! Blocks, transactions, receipts, and accounts.

use alloy::consensus::{TxEip1559, TxEip2930, TxLegacy};
use alloy::eips::eip2930::{AccessList, AccessListItem};
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use serde_json::{Value, json};

use super::env::{CHAIN_ID, Env, GWEI, payee, signed, tx};
use super::normal::{BLOCK_DIFFERENT, BLOCK_ONLY_ANVIL, RECEIPT_ONLY_ANVIL};
use super::pair::{Expected, SAFE_DEPTH};

const UNKNOWN: B256 = B256::repeat_byte(7);

/// Block 3 contains all types of transactions. Blocks 4, 5, and 6 are empty, so block 4 is `safe`.
async fn full_env() -> (Env, Vec<B256>) {
    let env = Env::new().await;
    let owner = &env.owner;
    let mut hashes = Vec::new();
    for raw in [
        env.transfer(env.usdc, payee(1), 5),
        // Reverts: the payer of the second transaction owns nothing.
        env.call(env.usdt, Token::transferFromCall { from: payee(1), to: payee(2), value: U256::from(9) }.abi_encode()),
        env.sign(TxEip1559 { to: TxKind::Create, input: "0x60015f5260205ff3".parse().unwrap(), ..env.tx() }),
        env.sign(TxEip1559 { value: U256::from(77), gas_limit: 21_000, ..env.tx() }),
        signed(owner, legacy_transfer(&env, owner.next_nonce())),
        signed(owner, accessing(&env, owner.next_nonce())),
        // Emits two logs.
        env.call(
            env.usdt,
            Token::mintBatchCall { to: vec![payee(3), payee(4)], values: vec![U256::from(1), U256::from(2)] }
                .abi_encode(),
        ),
        // A creation that reverts: it fails and changes only the fee.
        env.sign(TxEip1559 { to: TxKind::Create, input: "0x5f5ffd".parse().unwrap(), ..env.tx() }),
    ] {
        hashes.push(env.pair.send(&raw).await);
    }
    for _ in 0..4 {
        env.pair.mine().await;
    }
    (env, hashes)
}

fn legacy_transfer(env: &Env, nonce: u64) -> TxLegacy {
    let input = Token::transferCall { to: payee(2), value: U256::from(6) }.abi_encode().into();
    let (gas_price, gas_limit, to) = (2 * GWEI, 100_000, env.usdc.into());
    TxLegacy { chain_id: Some(CHAIN_ID), nonce, gas_price, gas_limit, to, value: U256::ZERO, input }
}

fn accessing(env: &Env, nonce: u64) -> TxEip2930 {
    let input = Token::transferCall { to: payee(3), value: U256::from(7) }.abi_encode().into();
    let item = AccessListItem { address: env.usdc, storage_keys: vec![B256::ZERO] };
    let (gas_price, gas_limit, to) = (2 * GWEI, 100_000, env.usdc.into());
    let access_list = AccessList(vec![item]);
    TxEip2930 { chain_id: CHAIN_ID, nonce, gas_price, gas_limit, to, value: U256::ZERO, access_list, input }
}

#[tokio::test]
async fn blocks_are_equal() {
    let (env, _) = full_env().await;
    let pair = &env.pair;
    for method in ["eth_chainId", "net_version", "eth_blockNumber", "eth_syncing", "net_listening", "eth_accounts"] {
        pair.same(method, json!([])).await;
    }
    for full in [true, false] {
        for tag in ["latest", "safe", "finalized", "0x1", "0x2", "0x3", "0x6", "0x7", "0xffffffffffffffff"] {
            pair.same("eth_getBlockByNumber", json!([tag, full])).await;
        }
        for number in 1..=6 {
            let block =
                pair.same_at("eth_getBlockByHash", async |node| json!([node.hash_of(number).await, full])).await;
            assert_eq!(block["number"], format!("{number:#x}"));
        }
        pair.same("eth_getBlockByHash", json!([UNKNOWN, full])).await;
    }
    let block = async |tag: &str| pair.devchain.get("eth_getBlockByNumber", json!([tag, false])).await;
    assert_eq!(block("safe").await["number"], format!("{:#x}", 6 - SAFE_DEPTH));
    assert_eq!(block("finalized").await["number"], format!("{:#x}", 6 - 2 * SAFE_DEPTH));
    assert_eq!(block("0x3").await["transactions"].as_array().unwrap().len(), 8);
    pair.malformed("eth_getBlockByNumber", [json!([]), json!(["0x1"]), json!(["0x1", "yes"]), json!(["0xzz", true])])
        .await;
    pair.malformed(
        "eth_getBlockByHash",
        [json!([]), json!([UNKNOWN]), json!(["0x12", true]), json!({"blockHash": UNKNOWN})],
    )
    .await;
}

/// Checks the fields that `normal.rs` removes: they exist on one node only, or differ.
#[tokio::test]
async fn removed_fields_exist_as_documented() {
    let (env, hashes) = full_env().await;
    let pair = &env.pair;
    let fields = async |method: &str, params: Value| {
        let answers = pair.each(method, params).await;
        answers.map(|answer| answer.as_object().unwrap().keys().cloned().collect::<Vec<_>>())
    };
    let [anvil, devchain] = fields("eth_getBlockByNumber", json!(["0x3", false])).await;
    for field in BLOCK_ONLY_ANVIL.map(str::to_owned) {
        assert!(anvil.contains(&field) && !devchain.contains(&field), "{field}");
    }
    for field in BLOCK_DIFFERENT.map(str::to_owned) {
        assert!(anvil.contains(&field) && devchain.contains(&field), "{field}");
    }
    let [anvil, devchain] = fields("eth_getTransactionReceipt", json!([hashes[0]])).await;
    for field in RECEIPT_ONLY_ANVIL.map(str::to_owned) {
        assert!(anvil.contains(&field) && !devchain.contains(&field), "{field}");
    }
}

/// Anvil uses the configured base fee for blocks 0 and 1. The devchain's block 1 follows by EIP-1559.
#[tokio::test]
async fn only_the_base_fee_of_block_0_differs() {
    let (env, _) = full_env().await;
    let [mut anvil, mut devchain] = env.pair.each("eth_getBlockByNumber", json!(["earliest", true])).await;
    assert_eq!(
        (anvil["baseFeePerGas"].take(), devchain["baseFeePerGas"].take()),
        (json!("0x3b9aca00"), json!("0x441e9db6"))
    );
    for field in BLOCK_ONLY_ANVIL.iter().chain(&BLOCK_DIFFERENT).chain(&["hash"]) {
        anvil.as_object_mut().unwrap().remove(*field);
        devchain.as_object_mut().unwrap().remove(*field);
    }
    assert_eq!(anvil, devchain);
}

/// Anvil builds the next block from its mempool. The devchain returns the latest block, like Arbitrum, so that clients
/// cannot rely on more. The pending nonce includes the mempool on both (`transactions.rs`).
#[tokio::test]
async fn the_pending_block_is_the_latest() {
    let (env, _) = full_env().await;
    env.pay(env.usdc, payee(1), 1).await;
    let [anvil, devchain] = env.pair.each("eth_getBlockByNumber", json!(["pending", false])).await;
    assert_eq!((&anvil["number"], anvil["transactions"].as_array().unwrap().len()), (&json!("0x7"), 1));
    assert_eq!(devchain, env.pair.devchain.get("eth_getBlockByNumber", json!(["latest", false])).await);
    let receipts = env.pair.devchain.get("eth_getBlockReceipts", json!(["latest"])).await;
    let (anvil, devchain) = (Expected::Is(Value::Null), Expected::Is(receipts));
    env.pair.differs("eth_getBlockReceipts", json!(["pending"]), &anvil, &devchain).await;
}

#[tokio::test]
async fn transactions_and_receipts_are_equal() {
    let (env, hashes) = full_env().await;
    let pair = &env.pair;
    let mut statuses = Vec::new();
    for hash in &hashes {
        pair.same("eth_getTransactionByHash", json!([hash])).await;
        statuses.push(pair.same("eth_getTransactionReceipt", json!([hash])).await["status"].clone());
    }
    let (good, bad) = ("0x1", "0x0");
    assert_eq!(statuses, [good, bad, good, good, good, good, good, bad]);
    for tag in ["0x1", "0x2", "0x3", "0x4", "0x99", "latest", "safe"] {
        pair.same("eth_getBlockReceipts", json!([tag])).await;
    }
    let receipts = pair.same_at("eth_getBlockReceipts", async |node| json!([node.hash_of(3).await])).await;
    assert_eq!(receipts.as_array().unwrap().len(), hashes.len());
    pair.same("eth_getBlockReceipts", json!([UNKNOWN])).await;
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
        pair.same(method, json!([UNKNOWN])).await;
        pair.malformed(method, [json!([]), json!(["0x12"]), json!([5])]).await;
    }
}

/// A pending transaction has no price yet. The devchain returns its maximum price, like geth; anvil returns the price
/// in the next block.
#[tokio::test]
async fn pending_transactions_differ_only_in_price() {
    let env = Env::new().await;
    let pair = &env.pair;
    let next = env.owner.next_nonce();
    // One waits for a block, the other for an earlier transaction.
    for nonce in [next, next + 5] {
        let waiting = pair.send(&env.sign(tx(nonce))).await;
        pair.same("eth_getTransactionReceipt", json!([waiting])).await;
        let [mut anvil, mut devchain] = pair.each("eth_getTransactionByHash", json!([waiting])).await;
        assert_eq!(devchain["gasPrice"].take(), devchain["maxFeePerGas"]);
        assert_ne!(anvil["gasPrice"].take(), anvil["maxFeePerGas"]);
        assert_eq!(anvil, devchain);
    }
}

#[tokio::test]
async fn accounts_are_equal() {
    let (env, _) = full_env().await;
    let pair = &env.pair;
    let (owner, usdc) = (env.owner.address(), env.usdc);
    for tag in ["latest", "0x0", "0x1", "0x2", "0x3", "0x4", "safe", "finalized", "earliest"] {
        pair.same("eth_getTransactionCount", json!([owner, tag])).await;
        pair.same("eth_getCode", json!([usdc, tag])).await;
        pair.same("eth_getBalance", json!([payee(1), tag])).await;
        for slot in ["0x0", "0x1", "0x0000000000000000000000000000000000000000000000000000000000000002"] {
            pair.same("eth_getStorageAt", json!([usdc, slot, tag])).await;
        }
    }
    for tag in ["latest", "0x3", "0x2", "safe"] {
        pair.same("eth_getBalance", json!([owner, tag])).await;
    }
    for params in [json!([owner, null]), json!([payee(99), "latest"])] {
        pair.same("eth_getBalance", params.clone()).await;
        pair.same("eth_getTransactionCount", params.clone()).await;
        pair.same("eth_getCode", params).await;
    }
    for canonical in [json!({}), json!({"requireCanonical": true}), json!({"requireCanonical": false})] {
        let at = async |node: &super::pair::Node| {
            let mut id = canonical.clone();
            id["blockHash"] = node.hash_of(2).await;
            json!([owner, id])
        };
        pair.same_at("eth_getBalance", at).await;
        pair.same_at("eth_getTransactionCount", at).await;
    }
    pair.same_at("eth_getBalance", async |node| json!([owner, node.hash_of(2).await])).await;
    pair.same("eth_getBalance", json!([owner, {"blockNumber": "0x2"}])).await;
    for method in ["eth_getBalance", "eth_getCode", "eth_getTransactionCount"] {
        pair.malformed(
            method,
            [json!([]), json!([owner]), json!(["0x1234", "latest"]), json!([owner, "0xzz"]), json!([owner, 2])],
        )
        .await;
        unknown_blocks(&env, method, &[json!(owner)]).await;
    }
    unknown_blocks(&env, "eth_getStorageAt", &[json!(usdc), json!("0x0")]).await;
    unknown_blocks(&env, "eth_call", &[json!({"to": usdc})]).await;
    unknown_blocks(&env, "eth_estimateGas", &[json!({"to": payee(9)})]).await;
}

/// Asserts geth's message and anvil's message. The service treats them the same way (`crates/evm/src/wire.rs`).
async fn unknown_blocks(env: &Env, method: &str, params: &[Value]) {
    let at = |block: Value| Value::Array(params.iter().cloned().chain([block]).collect());
    let geth = (-32_000, "header not found");
    env.pair.refused(method, at(json!("0x99")), (-32_602, "BlockOutOfRangeError: block height is "), geth).await;
    let anvil = (-32_001, "Resource not found");
    env.pair.refused(method, at(json!({"blockHash": UNKNOWN})), anvil, geth).await;
}

/// On the devchain, set values are outside the history: older blocks show them too, and no reorg undoes them. On anvil
/// they apply from the block that was the head.
#[tokio::test]
async fn set_values_are_visible_in_older_blocks() {
    let env = Env::new().await;
    let code: Bytes = "0x60015f5260205ff3".parse().unwrap();
    env.pair.each("anvil_setCode", json!([payee(9), code])).await;
    env.pair.mine().await;
    env.pair.same("eth_getCode", json!([payee(9), "latest"])).await;
    let (anvil, devchain) = (Expected::Is(json!("0x")), Expected::Is(json!(code)));
    env.pair.differs("eth_getCode", json!([payee(9), "0x1"]), &anvil, &devchain).await;
}
