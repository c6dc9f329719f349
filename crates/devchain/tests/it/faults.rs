use std::time::{Duration, Instant};

use alloy::eips::BlockNumberOrTag;
use alloy::primitives::U256;
use alloy::providers::Provider;
use payferry_devchain::{Faults, RpcError};
use serde_json::json;

use crate::env::{Env, payee};

#[tokio::test]
async fn wire_faults_affect_only_the_named_methods() {
    let env = Env::new().await;
    let provider = env.provider();
    let status = async || {
        let error = provider.get_block_number().await.unwrap_err();
        error.as_transport_err().and_then(|kind| kind.as_http_error()).map(|error| error.status)
    };
    env.chain.set_faults(Faults { rate_limited_rate: 1.0, ..Faults::default() });
    assert_eq!(status().await, Some(429));
    env.chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    assert_eq!(status().await, Some(503));
    env.chain.set_faults(Faults { error_rate: 1.0, ..Faults::default() });
    assert_eq!(provider.get_block_number().await.unwrap_err().as_error_resp().unwrap().code, -32_603);
    env.chain.set_faults(Faults { latency_ms: 50, ..Faults::default() });
    let start = Instant::now();
    provider.get_block_number().await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
    // Only the named method, and not the handle itself.
    let faults = Faults { methods: vec!["eth_chainId".into()], error_rate: 1.0, ..Faults::default() };
    env.chain.set_faults(faults.clone());
    assert_eq!(env.chain.faults(), faults);
    provider.get_block_number().await.unwrap();
    provider.get_chain_id().await.unwrap_err();
    env.chain.call("eth_chainId", json!([])).await.unwrap();
    env.chain.set_faults(Faults::default());
    provider.get_chain_id().await.unwrap();
}

#[tokio::test]
async fn a_request_with_a_lost_response_was_executed() {
    let env = Env::new().await;
    let provider = env.provider();
    env.chain.set_faults(Faults { lost_answer_rate: 1.0, ..Faults::default() });
    let (raw, hash) = env.transfer_raw(payee(1), 1);
    provider.send_raw_transaction(&raw).await.unwrap_err();
    env.chain.set_faults(Faults::default());
    let again: RpcError = env.send(&raw).await.unwrap_err();
    assert_eq!(again.message, "already known");
    env.chain.mine(1).await.unwrap();
    assert!(env.receipt(hash).await.is_some());
}

#[tokio::test]
async fn a_lagging_head_hides_newer_blocks() {
    let env = Env::new().await;
    let receipt = env.pay(payee(1), 1).await;
    let head = env.chain.head();
    let provider = env.provider();
    env.chain.set_faults(Faults { head_lag_blocks: 1, ..Faults::default() });
    assert_eq!(provider.get_block_number().await.unwrap(), head.number - 1);
    assert!(provider.get_block_by_number(head.number.into()).await.unwrap().is_none());
    let latest = provider.get_block_by_number(BlockNumberOrTag::Latest).await.unwrap().unwrap();
    assert_eq!(latest.header.hash, head.parent_hash);
    assert!(provider.get_transaction_receipt(receipt.transaction_hash).await.unwrap().is_none());
    assert!(provider.get_logs(&env.transfers().select(head.number..=head.number)).await.unwrap().is_empty());
    provider.get_logs(&env.transfers().at_block_hash(head.hash)).await.unwrap_err();
    assert_eq!(provider.get_storage_at(payee(1), U256::ZERO).await.unwrap(), U256::ZERO);
}

#[tokio::test]
async fn logs_can_be_distorted() {
    let env = Env::new().await;
    for _ in 0..4 {
        env.transfer(payee(1), 1).await;
    }
    env.chain.mine(1).await.unwrap();
    let provider = env.provider();
    let filter = env.transfers();
    let right = provider.get_logs(&filter).await.unwrap();
    let distorted = async |faults: Faults| {
        env.chain.set_faults(faults);
        provider.get_logs(&filter).await
    };
    assert!(distorted(Faults { empty_logs_rate: 1.0, ..Faults::default() }).await.unwrap().is_empty());
    assert!(distorted(Faults { missing_log_rate: 1.0, ..Faults::default() }).await.unwrap().is_empty());
    assert_eq!(distorted(Faults { duplicate_log_rate: 1.0, ..Faults::default() }).await.unwrap().len(), 8);
    let stale = distorted(Faults { stale_log_rate: 1.0, ..Faults::default() }).await.unwrap();
    assert!(stale.iter().all(|log| log.block_hash != right[0].block_hash));
    let forged = distorted(Faults { forged_log_rate: 1.0, ..Faults::default() }).await.unwrap();
    assert_eq!(forged[..4], right[..]);
    assert_eq!(forged[4].block_hash, right[0].block_hash);
    assert!(provider.get_transaction_receipt(forged[4].transaction_hash.unwrap()).await.unwrap().is_none());
    env.chain.set_faults(Faults { logs_range_blocks_max: 2, ..Faults::default() });
    provider.get_logs(&filter.clone().select(0..=1)).await.unwrap();
    let error = provider.get_logs(&filter.clone().select(0..=2)).await.unwrap_err();
    assert_eq!(error.as_error_resp().unwrap().code, -32_005);
    env.chain.set_faults(Faults::default());
    assert_eq!(provider.get_logs(&filter).await.unwrap(), right);
}
