use std::time::{SystemTime, UNIX_EPOCH};

use payferry_devchain::{ChainConfig, Mining};
use serde_json::{Value, json};

use crate::world::{World, config, payee};

#[tokio::test]
async fn advancing_leaves_no_gap_wider_than_requested() {
    let since = std::time::Instant::now();
    let world = World::new().await;
    let start = world.chain.head();
    let hash = world.transfer(payee(1), 1).await;
    let head = world.chain.advance_time(3_605, 10).await.unwrap();
    // The clock continues meanwhile, longer on a busy machine.
    let elapsed = || since.elapsed().as_secs() + 2;
    let advanced = head.timestamp - start.timestamp;
    assert!((3_605..=3_605 + elapsed()).contains(&advanced), "{advanced}");
    assert_eq!(head.number, start.number + 361);
    assert_eq!(world.receipt(hash).await.unwrap().block_number, Some(start.number + 1));
    let mut parent = start;
    for number in start.number + 1..=head.number {
        let block: Value = world.call("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap();
        let timestamp = u64::from_str_radix(&block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
        assert!(timestamp >= parent.timestamp && timestamp - parent.timestamp <= 10 + elapsed(), "block {number}");
        parent.timestamp = timestamp;
    }
    assert_eq!(world.chain.time_offset_secs(), 3_605);
    let next = world.chain.mine(1).await.unwrap()[0];
    assert!(next.timestamp - head.timestamp <= elapsed());
}

#[tokio::test]
async fn a_time_jump_is_one_gap() {
    let world = World::new().await;
    let start = world.chain.head();
    let head = world.chain.jump_time(600).await.unwrap();
    assert_eq!(head.number, start.number + 1);
    assert!((600..660).contains(&(head.timestamp - start.timestamp)));
}

#[tokio::test]
async fn anvil_controls_have_the_same_effects() {
    let world = World::new().await;
    let start = world.chain.head();
    let _: Value = world.call("evm_increaseTime", json!([100])).await.unwrap();
    assert_eq!(world.call::<String>("evm_mine", json!([])).await.unwrap(), "0x0");
    let second = world.chain.head();
    assert!((100..160).contains(&(second.timestamp - start.timestamp)));

    let at = second.timestamp + 50;
    world.call::<Value>("evm_setNextBlockTimestamp", json!([at])).await.unwrap();
    world.call::<Value>("anvil_mine", json!(["0x1"])).await.unwrap();
    assert_eq!(world.chain.head().timestamp, at);
    let error = world.call::<Value>("evm_setNextBlockTimestamp", json!([at - 1])).await.unwrap_err();
    assert!(error.message.contains("lower than"), "{error}");

    world.call::<Value>("anvil_mine", json!([5, 12])).await.unwrap();
    let head = world.chain.head();
    assert_eq!(head.number, second.number + 6);
    assert!((60..120).contains(&(head.timestamp - at)), "{}", head.timestamp - at);
    world.call::<Value>("evm_mine", json!([{"timestamp": head.timestamp + 9, "blocks": 2}])).await.unwrap();
    assert_eq!(world.chain.head().number, head.number + 2);

    world.call::<Value>("anvil_setBalance", json!([payee(4), "0x10"])).await.unwrap();
    assert_eq!(world.call::<String>("eth_getBalance", json!([payee(4), "latest"])).await.unwrap(), "0x10");
    world.call::<Value>("anvil_setCode", json!([payee(4), "0x60015f5260205ff3"])).await.unwrap();
    assert_eq!(world.call::<String>("eth_getCode", json!([payee(4), "latest"])).await.unwrap(), "0x60015f5260205ff3");
    let output: String = world.call("eth_call", json!([{"to": payee(4)}, "latest"])).await.unwrap();
    assert!(output.ends_with("01") && output.len() == 66);
    world.call::<Value>("anvil_setNonce", json!([payee(5), 7])).await.unwrap();
    assert_eq!(world.call::<String>("eth_getTransactionCount", json!([payee(5), "latest"])).await.unwrap(), "0x7");

    let hash = world.transfer(payee(1), 1).await;
    world.call::<Value>("anvil_dropTransaction", json!([hash])).await.unwrap();
    world.chain.mine(1).await.unwrap();
    assert!(world.receipt(hash).await.is_none());
    let head = world.chain.head();
    world.call::<Value>("anvil_reorg", json!([2, []])).await.unwrap();
    assert_eq!(world.chain.head().number, head.number + 1);
    assert_ne!(world.chain.head().hash, head.hash);
}

#[tokio::test]
async fn mining_modes_can_be_changed() {
    let world = World::new().await;
    world.call::<Value>("evm_setAutomine", json!([true])).await.unwrap();
    let hash = world.transfer(payee(1), 1).await;
    assert!(world.receipt(hash).await.is_some());
    world.call::<Value>("evm_setAutomine", json!([false])).await.unwrap();
    let hash = world.transfer(payee(1), 1).await;
    assert!(world.receipt(hash).await.is_none());
    let mut heads = world.chain.heads();
    heads.mark_unchanged();
    world.call::<Value>("evm_setIntervalMining", json!([1])).await.unwrap();
    heads.changed().await.unwrap();
    assert!(world.receipt(hash).await.is_some());
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
