use std::time::{SystemTime, UNIX_EPOCH};

use payferry_devchain::{ChainConfig, Mining};
use serde_json::{Value, json};

use crate::env::{Env, config, payee};

#[tokio::test]
async fn advancing_leaves_no_gap_wider_than_requested() {
    let since = std::time::Instant::now();
    let env = Env::new().await;
    let start = env.chain.head();
    let hash = env.transfer(payee(1), 1).await;
    let head = env.chain.advance_time(3_605, 10).await.unwrap();
    // The clock continues meanwhile, longer on a busy machine.
    let elapsed = || since.elapsed().as_secs() + 2;
    let advanced = head.timestamp - start.timestamp;
    assert!((3_605..=3_605 + elapsed()).contains(&advanced), "{advanced}");
    assert_eq!(head.number, start.number + 361);
    assert_eq!(env.receipt(hash).await.unwrap().block_number, Some(start.number + 1));
    let mut parent = start;
    for number in start.number + 1..=head.number {
        let block = env.block(number).await;
        let timestamp = u64::from_str_radix(&block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
        assert!(timestamp >= parent.timestamp && timestamp - parent.timestamp <= 10 + elapsed(), "block {number}");
        parent.timestamp = timestamp;
    }
    assert_eq!(env.chain.time_offset_secs(), 3_605);
    let next = env.chain.mine(1).await.unwrap()[0];
    assert!(next.timestamp - head.timestamp <= elapsed());
}

#[tokio::test]
async fn a_time_jump_is_one_gap() {
    let env = Env::new().await;
    let start = env.chain.head();
    let head = env.chain.jump_time(600).await.unwrap();
    assert_eq!(head.number, start.number + 1);
    assert!((600..660).contains(&(head.timestamp - start.timestamp)));
}

#[tokio::test]
async fn anvil_controls_have_the_same_effects() {
    let env = Env::new().await;
    let start = env.chain.head();
    env.control("evm_increaseTime", json!([100])).await;
    assert_eq!(env.call::<String>("evm_mine", json!([])).await.unwrap(), "0x0");
    let second = env.chain.head();
    assert!((100..160).contains(&(second.timestamp - start.timestamp)));

    let at = second.timestamp + 50;
    env.control("evm_setNextBlockTimestamp", json!([at])).await;
    env.control("anvil_mine", json!(["0x1"])).await;
    assert_eq!(env.chain.head().timestamp, at);
    let error = env.call::<Value>("evm_setNextBlockTimestamp", json!([at - 1])).await.unwrap_err();
    assert!(error.message.contains("lower than"), "{error}");

    env.control("anvil_mine", json!([5, 12])).await;
    let head = env.chain.head();
    assert_eq!(head.number, second.number + 6);
    assert!((60..120).contains(&(head.timestamp - at)), "{}", head.timestamp - at);
    env.control("evm_mine", json!([{"timestamp": head.timestamp + 9, "blocks": 2}])).await;
    assert_eq!(env.chain.head().number, head.number + 2);

    env.control("anvil_setBalance", json!([payee(4), "0x10"])).await;
    assert_eq!(env.call::<String>("eth_getBalance", json!([payee(4), "latest"])).await.unwrap(), "0x10");
    env.control("anvil_setCode", json!([payee(4), "0x60015f5260205ff3"])).await;
    assert_eq!(env.call::<String>("eth_getCode", json!([payee(4), "latest"])).await.unwrap(), "0x60015f5260205ff3");
    let output: String = env.call("eth_call", json!([{"to": payee(4)}, "latest"])).await.unwrap();
    assert!(output.ends_with("01") && output.len() == 66);
    env.control("anvil_setNonce", json!([payee(5), 7])).await;
    assert_eq!(env.call::<String>("eth_getTransactionCount", json!([payee(5), "latest"])).await.unwrap(), "0x7");

    let hash = env.transfer(payee(1), 1).await;
    env.control("anvil_dropTransaction", json!([hash])).await;
    env.chain.mine(1).await.unwrap();
    assert!(env.receipt(hash).await.is_none());
    let head = env.chain.head();
    env.control("anvil_reorg", json!([2, []])).await;
    assert_eq!(env.chain.head().number, head.number + 1);
    assert_ne!(env.chain.head().hash, head.hash);
}

#[tokio::test]
async fn mining_modes_can_be_changed() {
    let env = Env::new().await;
    env.control("evm_setAutomine", json!([true])).await;
    let hash = env.transfer(payee(1), 1).await;
    assert!(env.receipt(hash).await.is_some());
    env.control("evm_setAutomine", json!([false])).await;
    let hash = env.transfer(payee(1), 1).await;
    assert!(env.receipt(hash).await.is_none());
    let mut heads = env.chain.heads();
    heads.mark_unchanged();
    env.control("evm_setIntervalMining", json!([1])).await;
    heads.changed().await.unwrap();
    assert!(env.receipt(hash).await.is_some());
}

#[tokio::test]
async fn timestamps_never_decrease_with_fast_blocks() {
    let mining = Mining::Interval(std::time::Duration::from_millis(5));
    let chain = payferry_devchain::Devchain::open(ChainConfig { mining, ..config() }).await.unwrap();
    let mut heads = chain.heads();
    let mut last = chain.head();
    while last.number < 100 {
        heads.changed().await.unwrap();
        let head = *heads.borrow_and_update();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(head.timestamp >= last.timestamp && head.timestamp <= now);
        last = head;
    }
}
