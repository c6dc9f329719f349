use std::time::Instant;

use alloy::primitives::{B256, Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_devchain::{ChainConfig, Mining, RpcError};
use serde_json::{Value, json};

use crate::env::{CHAIN_ID, Env, GWEI, config, payee};

fn message(result: Result<B256, RpcError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, -32_000, "{error}");
    error.message
}

fn signed(env: &Env, nonce: u64, units: u64, max_fee: u128, priority: u128) -> (Bytes, B256) {
    let input = Token::transferCall { to: payee(1), value: U256::from(units) }.abi_encode();
    env.owner.sign_call(CHAIN_ID, nonce, env.token, input.into(), 150_000, max_fee, priority)
}

#[tokio::test]
async fn a_zero_tip_is_replaced_by_a_higher_tip() {
    let env = Env::new().await;
    let nonce = env.nonce("latest").await;
    let send = async |max_fee, priority| env.send(&signed(&env, nonce, 1, max_fee, priority).0).await;
    send(GWEI, 0).await.unwrap();
    assert_eq!(message(send(GWEI * 2, 0).await), "replacement transaction underpriced");
    send(GWEI * 2, 1).await.unwrap();
}

#[tokio::test]
async fn nonce_gaps_and_low_fees_wait() {
    let env = Env::new().await;
    let nonce = env.nonce("latest").await;
    let (second, second_hash) = signed(&env, nonce + 1, 2, GWEI, 1);
    env.send(&second).await.unwrap();
    assert_eq!(env.nonce("pending").await, nonce);
    let status: Value = env.call("txpool_status", json!([])).await.unwrap();
    assert_eq!(status, json!({"pending": "0x0", "queued": "0x1"}));
    env.chain.mine(1).await.unwrap();
    assert!(env.receipt(second_hash).await.is_none());
    let pending: Value = env.call("eth_getTransactionByHash", json!([second_hash])).await.unwrap();
    assert_eq!(pending["blockHash"], Value::Null);

    // The first transaction offers less than the base fee and is replaced.
    let (low, _) = signed(&env, nonce, 1, 1_000, 1);
    env.send(&low).await.unwrap();
    assert_eq!(env.nonce("pending").await, nonce + 2);
    env.chain.mine(1).await.unwrap();
    assert_eq!(env.nonce("latest").await, nonce);
    let (first, _) = signed(&env, nonce, 1, GWEI, 2);
    env.send(&first).await.unwrap();
    env.chain.mine(1).await.unwrap();
    assert_eq!(env.nonce("latest").await, nonce + 2);
    assert!(env.receipt(second_hash).await.is_some());
}

#[tokio::test]
async fn each_transaction_gets_its_block() {
    let env = Env::with(ChainConfig { mining: Mining::PerTransaction, ..config() }).await;
    let hash = env.transfer(payee(1), 1).await;
    assert!(env.receipt(hash).await.unwrap().status());
    env.chain.pause_mining();
    let hash = env.transfer(payee(1), 1).await;
    assert!(env.receipt(hash).await.is_none());
    env.chain.resume_mining();
    // Many at the same time, each mined before the response.
    env.transfer_many(50).join_all().await;
    env.chain.mine(1).await.unwrap();
    assert_eq!(env.token_balance(payee(1), "latest").await, 52);
}

#[tokio::test]
async fn a_block_is_not_visible_before_its_sealed_at_time() {
    let env = Env::with(ChainConfig { mining: Mining::OnDemand, ..config() }).await;
    for blocks in [1, 3] {
        let mut heads = env.chain.heads();
        let last = env.chain.head().number + blocks;
        let asked = Instant::now();
        let seen = async {
            heads.wait_for(|head| head.number == last).await.unwrap();
            Instant::now()
        };
        let (seen, mined) = tokio::join!(seen, env.chain.mine(blocks));
        assert_eq!(mined.unwrap().len() as u64, blocks);
        let sealed_at = env.chain.sealed_at();
        assert!(asked <= sealed_at && sealed_at <= seen, "{asked:?} {sealed_at:?} {seen:?}");
    }
}

#[tokio::test]
async fn interval_mining_continues_and_pauses() {
    let mining = Mining::Interval(std::time::Duration::from_millis(20));
    let env = Env::with(ChainConfig { mining, ..config() }).await;
    let mut heads = env.chain.heads();
    let hash = env.transfer(payee(1), 1).await;
    let start = env.chain.head().number;
    heads.wait_for(|head| head.number > start + 2).await.unwrap();
    assert!(env.receipt(hash).await.is_some());
    env.chain.pause_mining();
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    let paused = env.chain.head();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(env.chain.head(), paused);
    env.chain.resume_mining();
    heads.wait_for(|head| head.number > paused.number).await.unwrap();
    env.chain.close().await;
    assert!(env.chain.mine(1).await.is_err());
}
