use alloy::primitives::{Address, B256};
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use payferry_contracts::Token;
use serde_json::{Value, json};

use crate::env::{Env, payee, topic};

#[tokio::test]
async fn filters_by_range_address_and_topics() {
    let env = Env::new().await;
    let mut receipts = Vec::new();
    for number in 1..=4 {
        receipts.push(env.pay(payee(number), u64::from(number)).await);
    }
    let first = receipts[0].block_number.unwrap();
    let transfers = env.transfers();
    let count = async |filter: Filter| env.logs(&filter).await.len();
    assert_eq!(count(transfers.clone().select(first..=first + 3)).await, 4);
    assert_eq!(count(transfers.clone().select(first..=first + 1)).await, 2);
    assert_eq!(count(transfers.clone().select(first + 2..)).await, 2);
    assert_eq!(count(transfers.clone().select(first + 50..=first + 60)).await, 0);
    assert_eq!(count(transfers.clone()).await, 1, "the default is the newest block");
    let all = || transfers.clone().select(0..);
    assert_eq!(count(all().topic2(vec![topic(payee(1)), topic(payee(3))])).await, 2);
    assert_eq!(count(all().topic1(topic(payee(1)))).await, 0);
    assert_eq!(count(all().address(vec![payee(7), env.token])).await, 5, "including the mint");
    assert_eq!(count(all().address(payee(7))).await, 0);
    assert_eq!(count(all().event_signature(B256::ZERO)).await, 0);
    assert_eq!(
        count(Filter::new().select(0..).event_signature(vec![B256::ZERO, Token::Transfer::SIGNATURE_HASH])).await,
        5
    );

    let logs = env.logs(&all().topic2(topic(payee(2)))).await;
    let receipt = &receipts[1];
    assert_eq!(logs, receipt.logs());
    assert_eq!(logs[0].transaction_hash, Some(receipt.transaction_hash));
}

#[tokio::test]
async fn filters_by_block_hash_and_rejects_an_unknown_one() {
    let env = Env::new().await;
    let receipt = env.pay(payee(1), 1).await;
    env.chain.mine(3).await.unwrap();
    let hash = receipt.block_hash.unwrap();
    assert_eq!(env.logs(&env.transfers().at_block_hash(hash)).await, receipt.logs());
    let unknown = env.transfers().at_block_hash(B256::repeat_byte(1));
    let error = env.call::<Value>("eth_getLogs", json!([unknown])).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32_000, "unknown block"));
    let backwards = env.transfers().from_block(3).to_block(1);
    assert!(env.call::<Value>("eth_getLogs", json!([backwards])).await.is_err());
}

#[tokio::test]
async fn log_index_counts_through_the_block() {
    let env = Env::new().await;
    for number in 1..=5 {
        env.transfer(payee(number), 1).await;
    }
    env.chain.mine(1).await.unwrap();
    let logs = env.logs(&env.transfers()).await;
    let places: Vec<_> = logs.iter().map(|log| (log.log_index.unwrap(), log.transaction_index.unwrap())).collect();
    assert_eq!(places, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    let to: Vec<_> = logs.iter().map(|log| Address::from_word(log.topics()[2])).collect();
    assert_eq!(to, [1, 2, 3, 4, 5].map(payee));
}
