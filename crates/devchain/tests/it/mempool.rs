use std::time::Instant;

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_devchain::{ChainConfig, Mining, RpcError, Wallet};
use serde_json::{Value, json};

use crate::world::{CHAIN_ID, GWEI, World, config, payee};

fn message(result: Result<B256, RpcError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, -32_000, "{error}");
    error.message
}

fn signed(world: &World, nonce: u64, units: u64, max_fee: u128, priority: u128) -> (alloy::primitives::Bytes, B256) {
    let input = Token::transferCall { to: payee(1), value: U256::from(units) }.abi_encode();
    world.owner.sign_call(CHAIN_ID, nonce, world.token, input.into(), 150_000, max_fee, priority)
}

#[tokio::test]
async fn replacement_requires_ten_percent_more_of_both_fees() {
    let world = World::new().await;
    let nonce = world.nonce("latest").await;
    let (first, _) = signed(&world, nonce, 1, GWEI, 1_000_000);
    world.send(&first).await.unwrap();
    assert_eq!(message(world.send(&first).await), "already known");
    for (max_fee, priority) in [(GWEI, 1_000_000), (GWEI * 11 / 10, 1_050_000), (GWEI * 109 / 100, 1_100_000)] {
        let (raw, _) = signed(&world, nonce, 2, max_fee, priority);
        assert_eq!(message(world.send(&raw).await), "replacement transaction underpriced");
    }
    let (raw, hash) = signed(&world, nonce, 3, GWEI * 11 / 10, 1_100_000);
    world.send(&raw).await.unwrap();
    world.chain.mine(1).await.unwrap();
    assert!(world.receipt(hash).await.unwrap().status());
    assert_eq!(world.token_balance(payee(1), "latest").await, 3);
    assert!(message(world.send(&first).await).starts_with("nonce too low"));
    assert!(message(world.send(&raw).await).starts_with("nonce too low"));
}

#[tokio::test]
async fn a_zero_tip_is_replaced_by_a_higher_tip() {
    let world = World::new().await;
    let nonce = world.nonce("latest").await;
    let send = async |max_fee, priority| world.send(&signed(&world, nonce, 1, max_fee, priority).0).await;
    send(GWEI, 0).await.unwrap();
    assert_eq!(message(send(GWEI * 2, 0).await), "replacement transaction underpriced");
    send(GWEI * 2, 1).await.unwrap();
}

#[tokio::test]
async fn rejections_use_geth_messages() {
    let world = World::new().await;
    let nonce = world.nonce("latest").await;
    let poor = Wallet::from_seed("poor");
    let (raw, _) = poor.sign_call(CHAIN_ID, 0, payee(1), "0x".parse().unwrap(), 21_000, GWEI, 1);
    assert!(message(world.send(&raw).await).starts_with("insufficient funds for gas * price + value"));
    let (raw, _) = world.owner.sign_call(1, nonce, payee(1), "0x".parse().unwrap(), 21_000, GWEI, 1);
    assert!(message(world.send(&raw).await).starts_with("invalid chain id"));
    let (raw, _) = world.owner.sign_call(CHAIN_ID, nonce, payee(1), "0x".parse().unwrap(), 20_999, GWEI, 1);
    assert_eq!(message(world.send(&raw).await), "intrinsic gas too low: gas 20999, minimum needed 21000");
    let (raw, _) = world.owner.sign_call(CHAIN_ID, nonce, payee(1), "0x".parse().unwrap(), 300_000_000, GWEI, 1);
    assert_eq!(message(world.send(&raw).await), "exceeds block gas limit");
    let (raw, _) = world.owner.sign_call(CHAIN_ID, nonce, payee(1), "0x".parse().unwrap(), 21_000, GWEI, GWEI + 1);
    assert!(message(world.send(&raw).await).starts_with("max priority fee per gas higher than max fee per gas"));
    assert!(message(world.send(&"0x0102".parse().unwrap()).await).contains("rlp"));
    let create = |size: usize| TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 30_000_000,
        max_fee_per_gas: GWEI,
        input: vec![0; size].into(),
        ..TxEip1559::default()
    };
    let (raw, _) = world.owner.sign(create(49_153));
    assert_eq!(message(world.send(&raw).await), "max initcode size exceeded: code size 49153, limit 49152");
    world.send(&world.owner.sign(create(49_152)).0).await.unwrap();
}

#[tokio::test]
async fn nonce_gaps_and_low_fees_wait() {
    let world = World::new().await;
    let nonce = world.nonce("latest").await;
    let (second, second_hash) = signed(&world, nonce + 1, 2, GWEI, 1);
    world.send(&second).await.unwrap();
    assert_eq!(world.nonce("pending").await, nonce);
    let status: Value = world.call("txpool_status", json!([])).await.unwrap();
    assert_eq!(status, json!({"pending": "0x0", "queued": "0x1"}));
    world.chain.mine(1).await.unwrap();
    assert!(world.receipt(second_hash).await.is_none());
    let pending: Value = world.call("eth_getTransactionByHash", json!([second_hash])).await.unwrap();
    assert_eq!(pending["blockHash"], Value::Null);

    // The first transaction offers less than the base fee and is replaced.
    let (low, _) = signed(&world, nonce, 1, 1_000, 1);
    world.send(&low).await.unwrap();
    assert_eq!(world.nonce("pending").await, nonce + 2);
    world.chain.mine(1).await.unwrap();
    assert_eq!(world.nonce("latest").await, nonce);
    let (first, _) = signed(&world, nonce, 1, GWEI, 2);
    world.send(&first).await.unwrap();
    world.chain.mine(1).await.unwrap();
    assert_eq!(world.nonce("latest").await, nonce + 2);
    assert!(world.receipt(second_hash).await.is_some());
}

#[tokio::test]
async fn blocks_take_the_best_tip_first_up_to_the_gas_limit() {
    let world = World::with(ChainConfig { block_gas_limit: 4_000_000, ..config() }).await;
    let rich = Wallet::from_seed("rich");
    world.chain.set_balance(rich.address(), U256::from(10).pow(U256::from(18))).await.unwrap();
    let first = world.transfer(payee(1), 1).await;
    let (raw, best) = rich.sign_call(CHAIN_ID, 0, payee(1), "0x".parse().unwrap(), 3_950_000, GWEI, GWEI / 2);
    world.send(&raw).await.unwrap();
    let block = world.chain.mine(1).await.unwrap()[0];
    let txs: Value = world.call("eth_getBlockByNumber", json!([format!("{:#x}", block.number), false])).await.unwrap();
    assert_eq!(txs["transactions"], json!([best, first]));
    assert_eq!(world.receipt(first).await.unwrap().transaction_index, Some(1));
}

#[tokio::test]
async fn each_transaction_gets_its_block() {
    let world = World::with(ChainConfig { mining: Mining::PerTransaction, ..config() }).await;
    let hash = world.transfer(payee(1), 1).await;
    assert!(world.receipt(hash).await.unwrap().status());
    world.chain.pause_mining();
    let hash = world.transfer(payee(1), 1).await;
    assert!(world.receipt(hash).await.is_none());
    world.chain.resume_mining();
    // Many at the same time, each mined before the response.
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (raw, hash) = world.transfer_raw(payee(1), 1);
        let chain = world.chain.clone();
        sends.spawn(async move {
            chain.call("eth_sendRawTransaction", json!([raw])).await.unwrap();
            hash
        });
    }
    sends.join_all().await;
    world.chain.mine(1).await.unwrap();
    assert_eq!(world.token_balance(payee(1), "latest").await, 52);
}

#[tokio::test]
async fn a_block_is_not_visible_before_its_sealed_at_time() {
    let world = World::with(ChainConfig { mining: Mining::OnDemand, ..config() }).await;
    for blocks in [1, 3] {
        let mut heads = world.chain.heads();
        let last = world.chain.head().number + blocks;
        let asked = Instant::now();
        let seen = async {
            heads.wait_for(|head| head.number == last).await.unwrap();
            Instant::now()
        };
        let (seen, mined) = tokio::join!(seen, world.chain.mine(blocks));
        assert_eq!(mined.unwrap().len() as u64, blocks);
        let sealed_at = world.chain.sealed_at();
        assert!(asked <= sealed_at && sealed_at <= seen, "{asked:?} {sealed_at:?} {seen:?}");
    }
}

#[tokio::test]
async fn interval_mining_continues_and_pauses() {
    let mining = Mining::Interval(std::time::Duration::from_millis(20));
    let world = World::with(ChainConfig { mining, ..config() }).await;
    let mut heads = world.chain.heads();
    let hash = world.transfer(payee(1), 1).await;
    let start = world.chain.head().number;
    heads.wait_for(|head| head.number > start + 2).await.unwrap();
    assert!(world.receipt(hash).await.is_some());
    world.chain.pause_mining();
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    let paused = world.chain.head();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(world.chain.head(), paused);
    world.chain.resume_mining();
    heads.wait_for(|head| head.number > paused.number).await.unwrap();
    world.chain.close().await;
    assert!(world.chain.mine(1).await.is_err());
}
